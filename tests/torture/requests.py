"""The calls, made of a few words each, so that a client that takes up another one's work sends the very same."""

import json

from torture.proxy import MARK
from torture.record import (
    REDUCERS, START, batch, messages, metadata, number, state, typed_value, typed_write,
)  # fmt: skip

# The refusals that a call promises where it is made. What lost a race is tried again; a deadlock nobody may see.
ALLOWED = {
    "put": {"40001"},
    "append": {"40001"},
    "pair": {"40001"},
    "writes": {"40001", "55000"},
    "error": {"40001", "55000"},
    "copy": {"40001", "55000"},
}
BLOCKED = {"40001", "55000"}


def allowed(spec):
    return BLOCKED if spec["thread"].startswith("doomed") else ALLOWED.get(spec["kind"], {"40001"})


def statement(function, *args, **named):
    places = ["%s"] * len(args) + [f"{name} => %s{CASTS.get((function, name), '')}" for name in named]
    return f"{MARK.decode()} SELECT * FROM {function}({', '.join(places)})", [*args, *named.values()]


CASTS = {("ckpt_put_typed", "bytes"): "::bytea[]", ("ckpt_put_writes_typed", "bytes"): "::bytea[]"}


def put(spec):
    name, revision = spec["id"], spec.get("revision", 0)
    named = {"checkpoint_id": name, "next": [f"task-{number(name) % 3}"]}
    named |= {key: spec[short] for short, key in (("parent", "parent_checkpoint_id"), ("fence", "expected_latest")) if short in spec}
    return [statement("ckpt_put", spec["thread"], state(spec["thread"], name, revision), metadata(name, revision, spec.get("run")), **named)]


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
    return [statement("ckpt_put_writes", spec["thread"], spec["base"], spec["task"], '[["__error__", "failed"]]', task_path=spec["path"])]


def fold(spec):
    named = {"checkpoint_id": spec["base"], "tasks": spec["tasks"]}
    # A thread that is bound to a graph has its reducers from there.
    named |= {} if spec["thread"].startswith("fold-1") else {"reducers": json.dumps(REDUCERS)}
    return [statement("ckpt_apply_writes", spec["thread"], **named)]


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
    return [statement("ckpt_put_typed", spec["thread"], spec["id"], typed_body(spec["id"]), json.dumps(spec["versions"]), **arrays, **named)]


def typed_body(name):
    return '{"v": 4, "name": "' + name + '", "x": 1.50}'


def typed_writes(spec):
    given = [typed_write(spec["task"], at) for at in range(spec["count"])]
    arrays = {"channels": ["small"] * len(given), "types": ["t"] * len(given), "bytes": given}
    return [statement("ckpt_put_writes_typed", spec["thread"], spec["id"], spec["task"], **arrays)]


KINDS = (put, start, append, pair, writes, error, fold, bind, fork, rewind, prune, delete_runs, delete_thread, copy, typed, typed_writes)
MAKERS = {make.__name__: make for make in KINDS}


def request(spec):
    """Statements with their arguments: one, or several that are one transaction."""
    return MAKERS[spec["kind"]](spec)
