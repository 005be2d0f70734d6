"""Recorded conversations in the OpenAI chat format, one JSON object a line: {"id": ..., "messages": [...]}.

A recording stands in for the model and for the tools, so that every run has a known right result. A message keeps the very
text it has in the file: the demonstration compares bytes, and parsing would lose the spelling of numbers and escapes.
"""

import json
import re
from typing import Any, Dict, List, NamedTuple

ROLES = ("system", "developer", "user", "assistant", "tool")

# Tools with such names change something in the database itself; all others have their effect outside.
IN_DATABASE = ("book_", "cancel_", "update_")


class Refused(Exception):
    """The file does not hold recorded conversations; `reasons` has one entry per bad line."""

    def __init__(self, reasons: List[str]):
        super().__init__("\n".join(reasons))
        self.reasons = reasons


class Call(NamedTuple):
    """A tool call: one task of its step."""

    task: str  # unique in the thread, and begins with the number of its step: "2/call_hotel"
    tool: str
    path: str  # its place in the step: a fold takes the writes in the order of their paths
    result: str  # the recorded `tool` message, as JSON text

    @property
    def in_database(self) -> bool:
        return self.tool.startswith(IN_DATABASE)


class Turn(NamedTuple):
    """A user message and all that follows up to the next one; goes into the message log as one piece."""

    name: str
    messages: List[str]  # JSON texts
    steps: int  # so many steps of the conversation must be done before the turn is complete


class Conversation(NamedTuple):
    id: str
    line: str  # the JSON text it was read from
    messages: List[str]  # JSON texts
    steps: List[List[Call]]
    turns: List[Turn]

    @property
    def calls(self) -> List[Call]:
        return [call for step in self.steps for call in step]


def read(path: str) -> List[Conversation]:
    """Reads and checks a whole file. Raises Refused, naming every line that is not of the form."""
    conversations: List[Conversation] = []
    reasons: List[str] = []
    line_of: Dict[str, int] = {}
    with open(path, "rb") as file:  # as bytes, so that nothing but \n ends a line
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                conversation = parse(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                first = line_of.setdefault(conversation.id, number)
                if first != number:
                    raise ValueError(f"the id {conversation.id!r} is that of line {first} too")
                conversations.append(conversation)
            except RecursionError:
                reasons.append(f"line {number}: nested too deep")
            except ValueError as error:
                reasons.append(f"line {number}: {error}")
    if not conversations and not reasons:
        reasons.append("it holds no conversation")
    if reasons:
        raise Refused(reasons)
    return conversations


def parse(line: str) -> Conversation:
    """Reads one line; a ValueError says why it is not a conversation."""
    line = line.strip(" \t\r\n")
    value = strict(line)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    name = value.get("id")
    name = name[1] if isinstance(name, tuple) else name  # a number: its digits
    _name(name, "id")
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages is no list, or an empty one")
    texts = elements(members(line)["messages"])
    _check_messages(messages)

    steps: List[List[Call]] = []
    turns: List[Turn] = []
    begin = 0
    for index, message in enumerate(messages):
        if message["role"] == "user" and any(m["role"] == "user" for m in messages[begin:index]):
            turns.append(Turn(f"turn-{len(turns) + 1}", texts[begin:index], len(steps)))
            begin = index
        if message["role"] == "assistant" and message.get("tool_calls"):
            steps.append(_step(len(steps) + 1, index, messages, texts))
        elif message["role"] == "tool":
            before = messages[index - 1] if index else {}
            if before.get("role") != "tool" and not before.get("tool_calls"):
                raise ValueError(f"message {index + 1}: a tool result, but no call right before it")
    turns.append(Turn(f"turn-{len(turns) + 1}", texts[begin:], len(steps)))
    return Conversation(name, line, texts, steps, turns)


def _step(number: int, index: int, messages: List[Any], texts: List[str]) -> List[Call]:
    """The calls of the assistant message at `index`, each with its result from the `tool` messages that follow."""
    results: Dict[str, str] = {}
    asked = [call["id"] for call in messages[index]["tool_calls"]]
    for place in range(index + 1, len(messages)):
        if messages[place]["role"] != "tool":
            break
        call_id = messages[place].get("tool_call_id")
        if call_id not in asked or call_id in results:
            raise ValueError(f"message {place + 1}: result of {call_id!r}, which is no open call")
        results[call_id] = texts[place]
    calls = []
    for place, call in enumerate(messages[index]["tool_calls"], 1):
        if call["id"] not in results:
            raise ValueError(f"message {index + 1}: the call {call['id']!r} has no result")
        task = f"{number}/{call['id']}"
        calls.append(Call(task, call["function"]["name"], f"{place:06d}", results[call["id"]]))
    return calls


def _check_messages(messages: List[Any]) -> None:
    ids = set()
    for index, message in enumerate(messages, 1):
        where = f"message {index}"
        if not isinstance(message, dict):
            raise ValueError(f"{where}: not an object")
        if message.get("role") not in ROLES:
            raise ValueError(f"{where}: role is {message.get('role')!r}, none of {', '.join(ROLES)}")
        if "ephemeral" in message:
            raise ValueError(f"{where}: ephemeral is no member of the chat format")
        if "id" in message:  # the log would keep it as the message's identity
            _name(message["id"], f"{where}: id")
            if message["id"] in ids:
                raise ValueError(f"{where}: id {message['id']!r} a second time")
            ids.add(message["id"])
        calls = message.get("tool_calls")
        if calls is None:
            continue
        if message["role"] != "assistant" or not isinstance(calls, list):
            raise ValueError(f"{where}: tool_calls must be a list, in an assistant message")
        asked = set()
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                raise ValueError(f"{where}: a tool call without id and function")
            _name(call.get("id"), f"{where}: the id of a tool call")
            _name(function.get("name"), f"{where}: the name of a function")
            if call["id"] in asked:
                raise ValueError(f"{where}: two calls with the id {call['id']!r}")
            asked.add(call["id"])


def _name(value: Any, what: str) -> None:
    """Names go into text columns: no U+0000, and no longer than the extension allows (a task id gets a prefix here)."""
    if not isinstance(value, str) or not value or "\0" in value or len(value.encode()) > 240:
        raise ValueError(f"{what} must be a string of 1 to 240 bytes without U+0000")


# JSON with its text kept.


def strict(text: str) -> Any:
    """Parses JSON for a comparison value for value: a number keeps its digits, and what cannot be kept is a ValueError."""
    value = _STRICT.decode(text)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate, which no UTF-8 text can hold") from None
    return value


def members(text: str) -> Dict[str, str]:
    """The members of a JSON object, each value as the text that stands there."""
    found, at = {}, _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = _STRICT.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)  # behind the colon
        at = _STRICT.raw_decode(text, start)[1]
        found[key] = text[start:at]
        at = _next(text, at)
    return found


def elements(text: str) -> List[str]:
    """The elements of a JSON array, each as the text that stands there."""
    found, at = [], _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        start, at = at, _STRICT.raw_decode(text, at)[1]
        found.append(text[start:at])
        at = _next(text, at)
    return found


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()


def _next(text: str, at: int) -> int:
    """From the end of a value to the next one, or to the closing bracket."""
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _unique(pairs: List[Any]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_SPACE = re.compile(r"[ \t\r\n]*")
_STRICT = json.JSONDecoder(
    parse_int=lambda digits: ("number", digits),
    parse_float=lambda digits: ("number", digits),
    parse_constant=_no_number,
    object_pairs_hook=_unique,
)
