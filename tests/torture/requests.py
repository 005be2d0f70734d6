"""The calls, made of a few words each, so that a client that takes up another one's work sends the very same."""

import json

from torture.proxy import MARK
from torture.record import (
    LEASE, REDUCERS, START, batch, messages, metadata, number, state, summary, typed_value, typed_write,
)  # fmt: skip

# The refusals that a call promises where it is made. What lost a race is tried again; a deadlock nobody may see.
ALLOWED = {
    "put": {"40001"},
    "append": {"40001"},
    "pair": {"40001"},
    "writes": {"40001", "55000"},
    "error": {"40001", "55000"},
    "ask": {"40001", "55000"},
    "copy": {"40001", "55000"},
}
BLOCKED = {"40001", "55000"}


def allowed(spec):
    return BLOCKED if spec["thread"].startswith("doomed") else ALLOWED.get(spec["kind"], {"40001"})


def statement(function, *args, **named):
    places = ["%s"] * len(args) + [f"{name} => %s{CASTS.get((function, name), '')}" for name in named]
    return f"{MARK.decode()} SELECT * FROM {function}({', '.join(places)})", [*args, *named.values()]


GRAPH = """SELECT ckpt_define_graph('torture', '{"list": {"reducer": "append"}, "total": {"reducer": "sum"},
    "tags": {"reducer": "union"}, "facts": {"reducer": "merge"}, "talk": {"reducer": "add_messages"}, "last": {}}')"""
CASTS = {("ckpt_put_typed", "bytes"): "::bytea[]", ("ckpt_put_writes_typed", "bytes"): "::bytea[]"}


def put(spec):
    name, revision = spec["id"], spec.get("revision", 0)
    named = {"checkpoint_id": name, "next": [f"task-{number(name) % 3}"]}
    optional = {"parent": "parent_checkpoint_id", "fence": "expected_latest"}
    named |= {optional[short]: spec[short] for short in optional if short in spec}
    given = [state(spec["thread"], name, revision), metadata(name, revision, spec.get("run"))]
    return [statement("ckpt_put", spec["thread"], *given, **named)]


def start(spec):
    return [statement("ckpt_put", spec["thread"], START, checkpoint_id="start", parent_checkpoint_id="")]


def append(spec):
    return [statement("ckpt_append", spec["thread"], json.dumps(messages(spec["turn"], spec["count"])), turn=spec["turn"])]


def pair(spec):
    """The state and the turn that led to it, in one transaction."""
    return [*put(spec), *append(spec)]


def writes(spec):
    return [statement("ckpt_put_writes", spec["thread"], spec["base"], spec["task"], batch(spec["task"]), task_path=spec["path"])]


def error(spec):
    written = '[["__error__", "failed"]]'
    return [statement("ckpt_put_writes", spec["thread"], spec["base"], spec["task"], written, task_path=spec["path"])]


def ask(spec):
    written = '[["__interrupt__", "which one?"]]'
    return [statement("ckpt_put_writes", spec["thread"], spec["base"], spec["task"], written, task_path=spec["path"])]


def fold(spec):
    named = {"checkpoint_id": spec["base"], "tasks": spec["tasks"]}
    # A thread that is bound to a graph has its reducers from there.
    named |= {} if spec["thread"].startswith("fold-1") else {"reducers": json.dumps(REDUCERS)}
    return [statement("ckpt_apply_writes", spec["thread"], **named)]


def define(_spec):
    """The same again, which is what each start of an agent does."""
    return [(f"{MARK.decode()} {GRAPH}", ())]


def bind(spec):
    return [statement("ckpt_bind", spec["thread"], "torture")]


def fork(spec):
    return [statement("ckpt_fork", spec["thread"], spec["id"])]


def rewind(spec):
    return [statement("ckpt_rewind", spec["thread"], spec["after"])]


def prune(spec):
    return [statement("ckpt_prune", [spec["thread"]], spec["keep"])]


def delete_runs(spec):
    return [statement("ckpt_delete_runs", spec["runs"])]


def delete_thread(spec):
    return [statement("ckpt_delete_thread", spec["thread"], block_for=spec["block"])]


def copy(spec):
    return [statement("ckpt_copy_thread", spec["source"], spec["thread"])]


def typed(spec):
    sent = [(channel, typed_value(channel, spec["versions"][channel])) for channel in spec["sent"]]
    arrays = {"channels": [c for c, _ in sent], "types": ["t"] * len(sent), "bytes": [value for _, value in sent]}
    named = {"parent_checkpoint_id": spec["parent"], "metadata": metadata(spec["id"])}
    given = [spec["id"], typed_body(spec["id"]), json.dumps(spec["versions"])]
    return [statement("ckpt_put_typed", spec["thread"], *given, **arrays, **named)]


def typed_body(name):
    return '{"v": 4, "name": "' + name + '", "x": 1.50}'


def typed_writes(spec):
    given = [typed_write(spec["task"], at) for at in range(spec["count"])]
    arrays = {"channels": ["small"] * len(given), "types": ["t"] * len(given), "bytes": given}
    return [statement("ckpt_put_writes_typed", spec["thread"], spec["id"], spec["task"], **arrays)]


def summary_due(spec):
    query = "SELECT message_count, edits FROM ckpt_summary_due(%s, 1, lease => make_interval(secs => %s))"
    return [(f"{MARK.decode()} {query}", (spec["thread"], LEASE))]


def put_summary(spec):
    given = [spec["covers"], summary(spec["thread"], spec["covers"])]
    return [statement("ckpt_put_summary", spec["thread"], *given, edits=spec["edits"])]


KINDS = (put, start, append, pair, writes, error, ask, fold, define, bind, fork, copy, typed, typed_writes)
KINDS += (summary_due, put_summary, rewind, prune, delete_runs, delete_thread)
MAKERS = {make.__name__: make for make in KINDS}


def request(spec):
    """Statements with their arguments: one, or several that are one transaction."""
    return MAKERS[spec["kind"]](spec)
