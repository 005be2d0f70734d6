"""ckpt_copy_thread: the same thread under another id, each distinct byte once, and the two go on apart."""

import json

import pytest

from support import TABLES, Later, refused
from test_typed import noise, put, put_writes

READS = ("ckpt_history", "ckpt_resume", "ckpt_messages", "ckpt_window", "ckpt_get_typed")


def fill(calls, thread):
    calls.value("ckpt_put", thread, json.dumps({"list": ["x" * 3000], "n": 1}), '{"run_id": "r"}', checkpoint_id="1", next=["t"])
    calls.value("ckpt_put_writes", thread, "1", "t", json.dumps([["list", "y" * 3000], ["n", 2]]))
    calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}', next=["u"])
    calls.value("ckpt_put_writes", thread, calls.row("ckpt_latest", thread).checkpoint_id, "u", '[["n", 3]]')
    calls.value("ckpt_fork", thread, "1")
    put(calls, thread, "typed", {"m": ("msgpack", noise(1, 5000))}, checkpoint_ns="sub")
    put_writes(calls, thread, "typed", "t", [("m", "msgpack", noise(2, 5000))], checkpoint_ns="sub")
    messages = [{"role": "user", "content": "yes"}, {"role": "user", "content": "yes"}, {"id": "own", "role": "ai", "content": "no"}]
    calls.rows("ckpt_append", thread, json.dumps(messages))
    calls.value("ckpt_put_summary", thread, 1, "They said yes.")
    return messages


def all_reads(calls, thread):
    """Everything that reading functions say of a thread, but for its name."""
    answers = [calls.rows(read, thread, checkpoint_ns="sub") for read in READS if read not in ("ckpt_messages", "ckpt_window")]
    answers += [calls.rows(read, thread) for read in READS]
    answers += [calls.rows("ckpt_list", thread), calls.rows("ckpt_list_typed", thread)]
    answers += [calls.value("ckpt_state", thread, row.checkpoint_id) for row in calls.rows("ckpt_list", thread, "")]
    drop_name = lambda row: tuple(value for name, value in row._asdict().items() if name != "thread_id")
    return [[drop_name(row) for row in rows] if isinstance(rows, list) else rows for rows in answers]


def test_a_copy_reads_as_its_source_and_costs_no_more(calls, thread):
    fill(calls, thread)
    counted = calls.value("ckpt_copy_thread", thread, f"{thread}/copy")
    assert counted == calls.count("checkpoints", thread) + calls.count("checkpoint_messages", thread)
    assert all_reads(calls, f"{thread}/copy") == all_reads(calls, thread)
    for table in TABLES:
        assert calls.count(table, f"{thread}/copy") == calls.count(table, thread), table


def test_the_two_go_on_apart(calls, thread):
    fill(calls, thread)
    calls.value("ckpt_copy_thread", thread, f"{thread}/copy")
    before = all_reads(calls, f"{thread}/copy")
    calls.value("ckpt_put", thread, '{"n": 9}')
    calls.value("ckpt_prune", [thread])
    calls.rows("ckpt_append", thread, '[{"role": "user", "content": "on"}]')
    calls.value("ckpt_delete_runs", ["none"])
    assert all_reads(calls, f"{thread}/copy") == before
    calls.value("ckpt_delete_thread", thread)
    assert all_reads(calls, f"{thread}/copy") == before
    latest = calls.row("ckpt_latest", f"{thread}/copy").checkpoint_id
    # Ids go on behind those of the source.
    assert calls.value("ckpt_put", f"{thread}/copy", "{}") > latest
    assert calls.value("ckpt_fork", f"{thread}/copy", "1") > latest


def test_a_client_that_sends_its_whole_history_to_the_copy_adds_only_what_is_new(calls, thread):
    messages = fill(calls, thread)
    calls.value("ckpt_copy_thread", thread, f"{thread}/copy")
    calls.rows("ckpt_append", f"{thread}/copy", '[{"role": "user", "content": "between"}]')
    calls.value("ckpt_copy_thread", f"{thread}/copy", f"{thread}/copy of it")
    history = [*messages, {"role": "user", "content": "between"}, {"role": "user", "content": "new"}]
    rows = calls.rows("ckpt_append", f"{thread}/copy of it", json.dumps(history))
    assert [row.inserted for row in rows] == [False] * 4 + [True]
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5]
    # What is new has the id that msg_id says.
    assert rows[-1].msg_id == calls.msg_id(f"{thread}/copy of it", "user", "new")


def test_a_copy_is_bound_as_its_source(calls, thread):
    calls.value("ckpt_define_graph", "copied", '{"documents": {"persist": false}}')
    calls.value("ckpt_bind", thread, "copied")
    calls.value("ckpt_put", thread, '{"a": 1}')
    calls.value("ckpt_copy_thread", thread, f"{thread}/copy")
    for ns in ("", "new"):
        calls.value("ckpt_put", f"{thread}/copy", '{"a": 2, "documents": 1}', checkpoint_ns=ns)
        assert calls.value("ckpt_state", f"{thread}/copy", checkpoint_ns=ns) == '{"a": 2}'


def test_a_target_that_is_bound_stays_so(calls, thread):
    calls.value("ckpt_define_graph", "target's", '{"documents": {"persist": false}}')
    calls.value("ckpt_define_graph", "source's", '{"other": {"persist": false}}')
    for source, graph in ((f"{thread}/unbound", None), (f"{thread}/bound", "source's")):
        target = f"{source}/copy"
        calls.value("ckpt_bind", target, "target's")
        if graph:
            calls.value("ckpt_bind", source, graph)
        calls.value("ckpt_put", source, '{"a": 1}')
        calls.value("ckpt_copy_thread", source, target)
        for ns in ("", "new"):
            calls.value("ckpt_put", target, '{"documents": 1, "other": 2}', checkpoint_ns=ns)
            assert calls.value("ckpt_state", target, checkpoint_ns=ns) == '{"other": 2}'


@pytest.mark.parametrize("late", ["put", "put_writes"])
def test_a_namespace_that_begins_during_a_copy_is_not_in_it(sessions, thread, late):
    holder, copier, newcomer, observer = sessions(4)
    fill(holder, thread)
    with holder.connection.transaction():
        # The copy has copied the heads and checkpoints when the newcomer begins.
        holder.connection.execute("LOCK TABLE checkpoint_blobs IN EXCLUSIVE MODE")
        copy = Later(observer, copier, "ckpt_copy_thread", thread, f"{thread}/copy")
        if late == "put":
            newcomer.value("ckpt_put", thread, "{}", checkpoint_ns="new")
        else:
            newcomer.value("ckpt_put_writes", thread, "c", "t", '[["a", 1]]', checkpoint_ns="new")
    copy.value()
    for table in ("checkpoint_heads", "checkpoints", "checkpoint_writes"):
        rows = holder.sql(f"SELECT DISTINCT checkpoint_ns FROM @s.{table} WHERE thread_id = %s", f"{thread}/copy")
        assert {ns for (ns,) in rows} == {"", "sub"}, table


@pytest.mark.parametrize("has", ["a checkpoint", "writes", "a namespace", "messages"])
def test_a_target_that_has_something_is_refused(calls, thread, has):
    fill(calls, thread)
    target = f"{thread}/target"
    match has:
        case "a checkpoint":
            calls.value("ckpt_put", target, "{}")
        case "writes":
            calls.value("ckpt_put_writes", target, "c", "t", "[]")
        case "a namespace":
            calls.value("ckpt_put", target, "{}", checkpoint_ns="other")
        case "messages":
            calls.rows("ckpt_append", target, '[{"role": "user", "content": "x"}]')
    before = {table: calls.count(table, target) for table in TABLES}
    with refused("55000") as refusal:
        calls.value("ckpt_copy_thread", thread, target)
    assert target in refusal.message and refusal.hint
    assert {table: calls.count(table, target) for table in TABLES} == before


def test_what_cannot_be_copied_is_refused(calls, thread):
    with refused("P0002"):
        calls.value("ckpt_copy_thread", thread, f"{thread}/copy")
    fill(calls, thread)
    with refused("22023"):
        calls.value("ckpt_copy_thread", thread, thread)


def test_a_log_alone_and_a_state_alone_are_copied(calls, thread):
    calls.rows("ckpt_append", f"{thread}/log", '[{"role": "user", "content": "x"}]')
    calls.value("ckpt_put", f"{thread}/state", "{}")
    for name in ("log", "state"):
        assert calls.value("ckpt_copy_thread", f"{thread}/{name}", f"{thread}/{name}/copy") == 1
    assert calls.row("ckpt_messages", f"{thread}/log/copy").content == "x"
    assert calls.value("ckpt_state", f"{thread}/state/copy") == "{}"
