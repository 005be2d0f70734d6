"""What a client was about to do and what it was told: one line each, in a file of its own, on disk before it goes on. And the
contents of what it sends, which follow from their names, so that the record need not hold them."""

import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

# For how many seconds a client has the job of making a summary.
LEASE = 2.0
ANSWERED, REFUSED, LOST = "answered", "refused", "lost"
MESSAGES = ["yes", "What about 1.50?", "It rains.", "\u202e\U0001f642 and \\u0000 as text"]


def number(name):
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest(), "big")


def text(name, size):
    """Text that does not repeat, so that nothing about it can be left out unnoticed."""
    parts = [hashlib.blake2b(f"{name}/{at}".encode()).hexdigest() for at in range(size // 128 + 1)]
    return "".join(parts)[:size]


def document(thread, name):
    """A text that a whole thread has, with something of its own in it: most of it is kept as a difference to another one."""
    base = text(thread, 9000)
    at = number(name) % len(base)
    return f"{base[:at]}<{name}>{base[at:]}"


def state(thread, name, revision=0):
    """The JSON text of a state."""
    key = f"{name}/{revision}"
    value = {"name": key, "small": [number(key) % 100, None, "\u00fc"], "large": text(key, number(key) % 4000)}
    value |= {"shared": text(thread, 3000), "document": document(thread, key)}
    # The writing of a number is part of the value.
    return json.dumps(value)[:-1] + ', "number": 1.50, "big": 1e400}'


def metadata(name, revision=0, run=None):
    return json.dumps({"name": name, "revision": revision} | ({"run_id": run} if run else {}))


def read_json(given):
    """JSON with its number texts and its order, to compare."""
    return json.loads(given, parse_float=str, parse_int=str, object_pairs_hook=tuple)


def messages(turn, count):
    """Some have ids of their own; two are equal in all but their place."""
    made = []
    for at in range(count):
        content = MESSAGES[number(f"{turn}/{at}") % len(MESSAGES)] if at % 2 else f"{turn} {text(turn, number(turn) % 3000)}"
        own = {"id": f"{turn}/{at}"} if number(turn) % 3 == 0 else {}
        made.append(own | {"role": "assistant" if at % 2 else "user", "content": content})
    return made


def summary(thread, covers):
    return f"{thread} until {covers}"


def typed_value(channel, version):
    """Of these channels one is small, one large, and one is mostly what it was before."""
    if channel == "small":
        return version.encode()
    if channel == "large":
        return text(version, 1500 + number(version) % 20_000).encode()
    return document("typed", version).encode()


def typed_write(task, at):
    return text(f"{task}/{at}", 20 if at else 2500).encode()


def batch(name):
    """What a task writes on a channel for each reducer, and on one that is replaced."""
    value = number(name)
    written = [["list", name], ["list", [f"{name}+"]], ["total", value % 1000], ["tags", [f"tag-{value % 7}"]]]
    written += [["facts", {f"key-{value % 20}": name}], ["last", text(name, value % 5000)]]
    written += [["talk", [{"id": f"m-{value % 10}", "role": "user", "content": name}]]]
    # Exact decimals.
    return json.dumps(written).replace(f'["total", {value % 1000}]', f'["total", {value % 1000}.{value % 10}]')


REDUCERS = {"list": "append", "total": "sum", "tags": "union", "facts": "merge", "talk": "add_messages"}
START = '{"list": [], "total": 0, "tags": [], "facts": {}, "talk": [], "last": ""}'


@dataclass
class Attempt:
    start: float
    end: float | None = None
    outcome: str | None = None
    sqlstate: str | None = None
    detail: str | None = None


@dataclass
class Op:
    """One thing that a client meant to do, and its attempts at it."""

    name: str
    spec: dict
    attempts: list[Attempt] = field(default_factory=list)
    result: object = None

    @property
    def acknowledged(self):
        return any(attempt.outcome == ANSWERED for attempt in self.attempts)

    @property
    def unanswered(self):
        """Whether an attempt has no answer: it may have been applied, or still be on its way."""
        return any(attempt.outcome in (LOST, None) for attempt in self.attempts)

    @property
    def possible(self):
        return self.acknowledged or self.unanswered

    @property
    def refused(self):
        """Its last word was a refusal that no other attempt can change."""
        return bool(self.attempts) and self.attempts[-1].outcome == REFUSED and self.attempts[-1].sqlstate != "40001"

    @property
    def was_there(self):
        """Whether the answer says that an earlier attempt did it."""
        if not (self.acknowledged and self.unanswered):
            return False
        return {"append": lambda: not self.result[0][2], "writes": lambda: not self.result[0][0]}.get(self.spec["kind"], bool)()

    @property
    def start(self):
        return self.attempts[0].start if self.attempts else float("inf")

    @property
    def end(self):
        """When nothing of it can happen any more."""
        return float("inf") if self.unanswered else max((attempt.end for attempt in self.attempts), default=0.0)

    @property
    def told(self):
        """When it was acknowledged."""
        return min(attempt.end for attempt in self.attempts if attempt.outcome == ANSWERED)


class Record:
    """The writer of a client's record."""

    def __init__(self, path):
        # One write per line, without a buffer: what was written is in the file whatever happens to the process.
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind, name, **members):
        # The clock is the machine's, so times of different processes can be compared.
        line = json.dumps({"kind": kind, "name": name, "at": time.monotonic()} | members)
        os.write(self.file, line.encode() + b"\n")


def record_path(directory, slot, generation):
    return Path(directory) / f"client-{slot:02}-{generation:05}.jsonl"


class Records:
    """All that the clients wrote."""

    def __init__(self, paths):
        self.ops = {}
        self.findings = []
        for path in paths:
            self.read(path)

    @classmethod
    def below(cls, directory):
        return cls(sorted(Path(directory).glob("client-*.jsonl")))

    def read(self, path):
        # splitlines() would also split at what a JSON text may hold.
        for line in Path(path).read_bytes().split(b"\n"):
            try:
                entry = json.loads(line)
            except ValueError:
                # Begun by a client that was killed: what it says was not done yet, or not seen by anybody.
                continue
            self.take(entry)

    def take(self, entry):
        kind, name = entry["kind"], entry["name"]
        if kind == "intent":
            # A successor notes again what it takes up.
            self.ops.setdefault(name, Op(name, entry["spec"]))
        elif kind == "try":
            self.ops[name].attempts.append(Attempt(entry["at"]))
        elif kind in (ANSWERED, REFUSED, LOST):
            attempt = self.ops[name].attempts[-1]
            attempt.end, attempt.outcome = entry["at"], kind
            attempt.sqlstate, attempt.detail = entry.get("sqlstate"), entry.get("detail")
            if kind == ANSWERED:
                self.ops[name].result = entry["result"]
        elif kind == "finding":
            self.findings.append(f"{name}: {entry['what']}")

    def calls(self):
        return sum(len(op.attempts) for op in self.ops.values())
