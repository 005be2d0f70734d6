"""msg_id in Python: an implementation of its own, by its description alone. `python msg_id.py` checks msg_id.json beside it.

An id is the first 20 bytes of blake3, in hex, over
    "checkpointer/msg_id/1", part(thread_id), part(role), kind, part(body), part(turn), u64le(occurrence)
where part(x) = u64le(number of bytes), bytes of UTF-8; kind is "t" for a body of text and "j" for canonical JSON.
"""

import json
import re
from pathlib import Path

from blake3 import blake3

VECTORS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


class Number(str):
    """A number as it is written."""


def parse(text):
    return json.loads(text, parse_int=Number, parse_float=Number)


def canonical(value):
    if isinstance(value, Number):
        return canonical_number(value)
    if isinstance(value, str):
        return '"' + re.sub(r'["\\\x00-\x1f]', escape, value) + '"'
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-8"))
        return "{" + ",".join(canonical(key) + ":" + canonical(member) for key, member in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return {True: "true", False: "false", None: "null"}[value]


def escape(match):
    character = match.group()
    return "\\" + character if character in '"\\' else f"\\u{ord(character):04x}"


def canonical_number(text):
    sign, whole, fraction, exponent = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", text).groups("")
    digits = whole + fraction
    significant = digits.strip("0")
    if not significant:
        return "0"
    power = int(exponent or 0) - len(fraction) + len(digits) - len(digits.rstrip("0"))
    return sign + significant + (f"e{power}" if power else "")


def part(text):
    data = text.encode("utf-8")
    return len(data).to_bytes(8, "little") + data


def framed(thread_id, role, kind, body, turn, occurrence):
    framing = b"checkpointer/msg_id/1" + part(thread_id) + part(role) + kind + part(body) + part(turn)
    return blake3(framing + occurrence.to_bytes(8, "little")).hexdigest(length=20)


def of_text(thread_id, role, text, turn="", occurrence=0):
    return framed(thread_id, role, b"t", text, turn, occurrence)


def of_json(thread_id, role, content, turn="", occurrence=0):
    """The same of content as JSON text. A JSON string has the id of its text."""
    value = parse(content)
    if isinstance(value, str) and not isinstance(value, Number):
        return of_text(thread_id, role, value, turn, occurrence)
    return framed(thread_id, role, b"j", canonical(value), turn, occurrence)


def of_message(thread_id, message, turn="", occurrence=0):
    """The id that the log gives a message without an id of its own."""
    value = parse(message)
    role = value["role"]
    body = {key: member for key, member in value.items() if key not in ("role", "id", "ephemeral")}
    content = body.get("content")
    if body.keys() == {"content"} and isinstance(content, str) and not isinstance(content, Number):
        return of_text(thread_id, role, content, turn, occurrence)
    return framed(thread_id, role, b"j", canonical(body), turn, occurrence)


def of_vector(vector):
    place = {"turn": vector["turn"], "occurrence": vector["occurrence"]}
    if "message" in vector:
        return of_message(vector["thread_id"], vector["message"], **place)
    if "json" in vector:
        return of_json(vector["thread_id"], vector["role"], vector["json"], **place)
    return of_text(vector["thread_id"], vector["role"], vector["text"], **place)


if __name__ == "__main__":
    for vector in VECTORS:
        assert of_vector(vector) == vector["msg_id"], vector["name"]
    print(f"{len(VECTORS)} vectors, all right")
