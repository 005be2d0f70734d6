"""Random programs of calls, run against the model and the extension, which must give the same answers.

A program is a list of (label, function, arguments); arguments are pairs of name and value. JSON arguments are text. In every text
`@` stands for a prefix that is the run's own. An argument ("made", label) is the checkpoint id that an earlier call gave. Ids
that are made are compared by the order in which they appear. After its calls everything that can be read is compared too.
"""

import itertools
import json
import re
from decimal import Decimal

import psycopg

from model import Model
from model_log import as_json
from model_state import Refused
from program_maker import CHOSEN, NAMESPACES, THREADS, make_program

CLOCK = "2026-03-01 12:00:00+00"
INLINE_LIMIT = 1024
LARGE = "a large value"
MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
MADE_MESSAGE = re.compile(r"[0-9a-f]{40}")
DESCRIBED = ("checkpoint_id", "parent_checkpoint_id", "next", "channels", "metadata", "pending_writes")
COLUMNS = {
    "ckpt_latest": DESCRIBED,
    "ckpt_history": DESCRIBED,
    "ckpt_list": DESCRIBED,
    "ckpt_resume": ("checkpoint_id", "next", "finished", "failed", "waiting", "todo"),
    "ckpt_messages": ("seq", "msg_id", "role", "content", "message", "turn"),
    "ckpt_append": ("seq", "msg_id", "inserted"),
}
JSON_COLUMNS = {"metadata", "finished", "failed", "waiting", "message"}
JSON_ARGUMENTS = {"state", "metadata", "writes", "reducers", "messages", "filter"}
EVERYTHING = """
    SELECT l.checkpoint_ns, l.checkpoint_id, l.next, l.pending_writes,
        @s.ckpt_state(l.thread_id, l.checkpoint_id, l.checkpoint_ns),
        ARRAY(SELECT h.checkpoint_id FROM @s.ckpt_history(l.thread_id, l.checkpoint_id, l.checkpoint_ns) h)
    FROM @s.ckpt_list(%s) l"""


def parsed(text):
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def is_json(function, name):
    return name in JSON_ARGUMENTS or (function, name) == ("ckpt_define_graph", "channels")


class Names:
    """Names what is made by the order in which it appears."""

    def __init__(self):
        self.names = {}

    def name(self, text, kind):
        return self.names.setdefault(text, f"{kind} {len(self.names)}")

    def __call__(self, value):
        match value:
            case str() if MADE.fullmatch(value) and value not in CHOSEN:
                return self.name(value, "id")
            case dict():
                return {key: self.member(key, value[key]) for key in sorted(value)}
            case list() | tuple():
                return [self(element) for element in value]
        return value

    def member(self, key, value):
        if key == "id" and isinstance(value, str) and MADE_MESSAGE.fullmatch(value):
            return self.name(value, "message")
        return self(value)

    def rows_of_everything(self, rows):
        # Ids of checkpoints have appeared before; those of messages may not have, so they must come in an order that is fixed.
        return self(sorted(rows, key=lambda row: (row[0], self(row[1]))))


class Side:
    """What is common to the two that are compared: arguments in, answers out."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.made = {}
        self.names = Names()

    def argument(self, value):
        match value:
            case str():
                return value.replace("@", self.prefix)
            case ("made", label):
                return self.made.get(label) or f"not made {label}"
            case list():
                return [self.argument(element) for element in value]
        return value

    def answer(self, label, function, arguments):
        """("refused", SQLSTATE) or ("gave", what)."""
        named = {name: self.argument(value) for name, value in arguments}
        try:
            gave = self.call(function, named)
        except Refused as refusal:
            return "refused", refusal.sqlstate
        except psycopg.Error as error:
            return "refused", error.sqlstate
        if isinstance(gave, str):
            self.made[label] = gave
        return "gave", self.names.rows_of_everything(gave) if function == "everything" else self.names(gave)


class ModelSide(Side):
    def __init__(self, prefix):
        super().__init__(prefix)
        self.model = Model()

    def call(self, function, named):
        named = {name: parsed(value) if is_json(function, name) else value for name, value in named.items()}
        gave = getattr(self.model, function)(**named)
        if COLUMNS.get(function) == DESCRIBED:
            return [(*row[:3], [self.shown(*channel) for channel in row[3]], *row[4:]) for row in gave]
        return gave

    def shown(self, name, value):
        return name, LARGE if len(as_json(value)) > INLINE_LIMIT else value


class ExtensionSide(Side):
    def __init__(self, prefix, calls):
        super().__init__(prefix)
        self.calls = calls
        self.call("clock", {"minutes": 0})

    def call(self, function, named):
        if function == "clock":
            later = "(%s::timestamptz + make_interval(mins => %s))::text"
            self.calls.sql(f"SELECT set_config('checkpointer.clock', {later}, false)", CLOCK, named["minutes"])
            return None
        if function == "everything":
            rows = self.calls.sql(EVERYTHING, named["thread_id"])
            ids = [row.checkpoint_id for row in rows]
            assert ids == sorted(ids, reverse=True), ids
            return [(*row[:4], list(parsed(row[4]).items()), row[5]) for row in rows]
        if "block_for" in named:
            named = named | {"block_for": f"{named['block_for']} minutes"}
        rows = self.calls.rows(function, **named)
        if function in COLUMNS:
            return [tuple(self.cell(name, getattr(row, name)) for name in COLUMNS[function]) for row in rows]
        [[value]] = rows
        if function == "ckpt_state":
            return list(parsed(value).items())
        if function == "ckpt_channel":
            return [] if value is None else [parsed(value)]
        return None if value == "" else value

    def cell(self, name, value):
        if name == "channels":
            return [(channel, self.shown(shown)) for channel, shown in parsed(value).items()]
        return parsed(value) if name in JSON_COLUMNS else value

    def shown(self, value):
        return LARGE if isinstance(value, dict) and value.keys() == {"$type", "$bytes"} else value


def final_reads():
    """Everything that can be read of the threads of a program."""
    reads = []
    for thread in THREADS:
        reads += [("everything", {"thread_id": thread}), ("ckpt_messages", {"thread_id": thread})]
        for ns in NAMESPACES:
            for function in ("ckpt_latest", "ckpt_list", "ckpt_resume"):
                reads.append((function, {"thread_id": thread, "checkpoint_ns": ns}))
    return [(f"read {number}", function, list(named.items())) for number, (function, named) in enumerate(reads)]


READS = final_reads()


class Difference:
    def __init__(self, program, call, model, extension):
        self.program, self.call, self.model, self.extension = program, call, model, extension

    def __str__(self):
        calls = "\n".join(as_sql(call) for call in self.program)
        told = f"{calls}\n-- and then\n{as_sql(self.call)}\n-- model:     {self.model}\n-- extension: {self.extension}"
        return re.sub(r"([xyz])\1{99,}", lambda run: f"{run[1]}…{len(run[0])}", told)


class Comparison:
    def __init__(self, calls, token):
        self.calls = calls
        self.token = token
        self.runs = itertools.count(1)

    def difference(self, program):
        """The first difference between model and extension, or None."""
        prefix = f"{self.token}{next(self.runs)}/"
        model, extension = ModelSide(prefix), ExtensionSide(prefix, self.calls)
        for number, call in enumerate([*program, *READS]):
            expected, given = model.answer(*call), extension.answer(*call)
            if expected != given:
                return Difference(program[: min(number, len(program))], call, expected, given)
        return None

    def shrunk(self, difference):
        """A difference of a program from which no call can be left out."""
        shorter = True
        while shorter:
            shorter = False
            for at in reversed(range(len(difference.program))):
                calls = [*difference.program, *([] if difference.call in READS else [difference.call])]
                found = self.difference(calls[:at] + calls[at + 1 :])
                if found:
                    difference, shorter = found, True
                    break
        return difference

    def run(self, seed, number):
        """None, or what to tell of a program on which the two differ."""
        found = self.difference(make_program(seed, number, ModelSide(self.token)))
        return found and f"CKPT_MODEL_SEED={seed}, program {number}:\n{self.shrunk(found)}"


def as_sql(call):
    """A call as a line for psql; what it makes is kept in a variable."""
    label, function, arguments = call
    if function == "everything":
        function = "ckpt_list"
    if function == "clock":
        minutes = dict(arguments)["minutes"]
        return f"SELECT set_config('checkpointer.clock', ('{CLOCK}'::timestamptz + interval '{minutes} minutes')::text, false);"
    places = ", ".join(f"{name} => {literal(name, value)}" for name, value in arguments)
    keeps = function in ("ckpt_put", "ckpt_apply_writes", "ckpt_fork")
    return f"SELECT * FROM {function}({places})" + (f" AS made_{label} \\gset" if keeps else ";")


def literal(name, value):
    match value:
        case ("made", label):
            return f":'made_{label}'"
        case list():
            return "ARRAY[" + ", ".join(literal(name, element) for element in value) + "]::text[]"
        case None | int():
            return "NULL" if value is None else f"'{value} minutes'" if name == "block_for" else str(value)
    text = "'" + value.replace("'", "''") + "'"
    return re.sub(r"([xyz])\1{99,}", lambda run: f"' || repeat('{run[1]}', {len(run[0])}) || '", text)
