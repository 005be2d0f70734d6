"""ckpt_delete_thread with a block, and ckpt_delete_runs: what is gone stays gone, and what others need stays."""

import json

import pytest

from support import TABLES, Later, refused
from test_prune import ids
from test_typed import put as put_tagged
from test_typed import put_writes as put_writes_tagged



def put_typed(calls, thread, id, versions, values, **named):
    """Values are bytes of one type."""
    put_tagged(calls, thread, id, {name: ("b", value) for name, value in values.items()}, versions, **named)


def put_writes_typed(calls, thread, id, task, writes):
    put_writes_tagged(calls, thread, id, task, [(channel, "b", value) for channel, value in writes])


WRITES = {
    "put": lambda calls, thread: calls.value("ckpt_put", thread, "{}"),
    "put with an id": lambda calls, thread: calls.value("ckpt_put", thread, "{}", checkpoint_id="c"),
    "put elsewhere": lambda calls, thread: calls.value("ckpt_put", thread, "{}", checkpoint_ns="sub"),
    "put_typed": lambda calls, thread: put_typed(calls, thread, "c", {"a": 1}, {"a": b"x"}),
    "put_writes": lambda calls, thread: calls.value("ckpt_put_writes", thread, "c", "t", '[["a", 1]]'),
    "put_writes_typed": lambda calls, thread: put_writes_typed(calls, thread, "c", "t", [("a", b"x")]),
    "append": lambda calls, thread: calls.rows("ckpt_append", thread, '[{"role": "user", "content": "late"}]'),
    "bind": lambda calls, thread: calls.value("ckpt_bind", thread, "graph"),
    "copy to it": lambda calls, thread: calls.value("ckpt_copy_thread", f"{thread}/source", thread),
}


def set_clock(calls, time):
    calls.sql("SELECT set_config('checkpointer.clock', %s, false)", time)


def delete_for(calls, thread, interval):
    return calls.sql("SELECT @s.ckpt_delete_thread(%s, %s::text::interval)", thread, interval)[0][0]


def rows_left(calls, thread):
    return {table: calls.count(table, thread) for table in TABLES if calls.count(table, thread)}


@pytest.fixture
def filled(calls, thread):
    calls.value("ckpt_define_graph", "graph", "{}")
    for name in (thread, f"{thread}/source"):
        calls.value("ckpt_put", name, '{"a": 1}', checkpoint_id="c", next=["t"])
        calls.rows("ckpt_append", name, '[{"role": "user", "content": "hi"}]')
    yield calls
    set_clock(calls, "")


@pytest.mark.parametrize("late", WRITES)
@pytest.mark.needs_session
def test_a_late_write_does_not_bring_a_deleted_thread_back(filled, thread, late):
    set_clock(filled, "2026-03-01 12:00:00+00")
    assert delete_for(filled, thread, "10 minutes") == 2
    with refused("55000") as refusal:
        WRITES[late](filled, thread)
    assert "deleted" in refusal.message and "2026-03-01T12:10:00+00:00" in refusal.detail and refusal.hint
    assert rows_left(filled, thread) == {}
    set_clock(filled, "2026-03-01 12:09:59+00")
    with refused("55000"):
        WRITES[late](filled, thread)
    set_clock(filled, "2026-03-01 12:10:00+00")
    WRITES[late](filled, thread)


def test_without_a_block_a_thread_begins_anew(filled, thread):
    assert filled.value("ckpt_delete_thread", thread) == 2
    for write in ("put", "append"):
        WRITES[write](filled, thread)
    assert len(filled.rows("ckpt_list", thread)) == 1
    assert [row.seq for row in filled.rows("ckpt_messages", thread)] == [1]


@pytest.mark.needs_session
def test_a_block_is_not_lifted_by_another_deletion(filled, thread):
    set_clock(filled, "2026-03-01 12:00:00+00")
    delete_for(filled, thread, "1 hour")
    assert delete_for(filled, thread, "1 minute") == 0
    assert filled.value("ckpt_delete_thread", thread) == 0
    set_clock(filled, "2026-03-01 12:59:00+00")
    with refused("55000"):
        WRITES["put"](filled, thread)


def test_a_thread_that_does_not_exist_can_be_blocked(calls, thread):
    assert delete_for(calls, thread, "1 hour") == 0
    with refused("55000"):
        WRITES["append"](calls, thread)


def test_other_threads_and_tenants_are_not_blocked(filled, thread):
    delete_for(filled, thread, "1 hour")
    WRITES["put"](filled, f"{thread}/source")
    with filled.connection.transaction():
        filled.sql("SELECT set_config('checkpointer.tenant', 'acme', true)")
        WRITES["put"](filled, thread)


@pytest.mark.needs_session
def test_expired_blocks_are_swept(calls, thread):
    set_clock(calls, "2001-03-01 12:00:00+00")
    delete_for(calls, f"{thread}/old", "1 hour")
    set_clock(calls, "")
    delete_for(calls, thread, "1 hour")
    left = calls.sql("SELECT thread_id FROM @s.checkpoint_threads WHERE thread_id LIKE %s", f"{thread}%")
    assert left == [(thread,)]


@pytest.mark.parametrize("interval", ["0", "-1 hour", "1 month -31 days"])
def test_a_block_must_be_positive(calls, thread, interval):
    with refused("22023"):
        delete_for(calls, thread, interval)


def test_a_deletion_forgets_the_graph(calls, thread):
    calls.value("ckpt_define_graph", "graph", '{"documents": {"persist": false}}')
    calls.value("ckpt_bind", thread, "graph")
    calls.value("ckpt_delete_thread", thread)
    calls.value("ckpt_put", thread, '{"documents": 1}')
    assert calls.value("ckpt_state", thread) == '{"documents": 1}'


@pytest.mark.parametrize("first", ["put", "put elsewhere", "put_writes", "append"])
def test_a_deletion_waits_for_a_first_touch_and_takes_it_too(sessions, thread, first):
    one, two, observer = sessions(3)
    with one.connection.transaction():
        WRITES[first](one, thread)
        deletion = Later(observer, two, "ckpt_delete_thread", thread)
    deletion.value()
    assert rows_left(one, thread) == {}


@pytest.mark.parametrize("first", ["put", "put elsewhere", "put_writes", "append"])
def test_a_first_touch_that_meets_a_deletion_is_told_to_retry(sessions, thread, first):
    one, two = sessions(2)
    with one.connection.transaction():
        delete_for(one, thread, "1 hour")
        with refused("40001"):
            WRITES[first](two, thread)
    with refused("55000"):
        WRITES[first](two, thread)


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("first", ["put", "put_writes", "append"])
@pytest.mark.parametrize("interval", [None, "1 hour"])
def test_a_stale_snapshot_does_not_go_on_from_what_was_deleted(filled, sessions, thread, isolation, first, interval):
    large = json.dumps({"text": "x" * 5000})
    filled.value("ckpt_put", thread, large, checkpoint_id="large")
    [session] = sessions(1)
    session.connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    assert session.row("ckpt_latest", thread).checkpoint_id == "large"
    if interval:
        delete_for(filled, thread, interval)
    else:
        filled.value("ckpt_delete_thread", thread)
    with refused("55000" if interval else "40001"):
        WRITES[first](session, thread)
    session.connection.execute("ROLLBACK")
    assert rows_left(filled, thread) == {}


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_stale_snapshot_does_not_refer_to_what_was_pruned(filled, sessions, thread, isolation):
    old = json.dumps({"text": "x" * 5000})
    filled.value("ckpt_put", thread, old, checkpoint_id="old")
    filled.value("ckpt_put", thread, json.dumps({"text": "y" * 5000}), checkpoint_id="zz")
    [session] = sessions(1)
    session.connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    session.row("ckpt_latest", thread)
    filled.value("ckpt_prune", [thread])
    with refused("40001"):
        session.value("ckpt_put", thread, old, checkpoint_id="zzz")


def run(calls, thread, *puts, **named):
    for id, run_id in puts:
        calls.value("ckpt_put", thread, json.dumps({"n": id}), json.dumps({"run_id": run_id}), checkpoint_id=id, **named)


def parents(calls, thread):
    return {row.checkpoint_id: row.parent_checkpoint_id for row in calls.rows("ckpt_list", thread)}


def test_runs_go_and_their_children_get_the_nearest_ancestor(calls, thread):
    run(calls, thread, ("1", "a"), ("2", "b"), ("3", "b"), ("4", "c"))
    run(calls, f"{thread}/other", ("1", "b"), ("2", "c"))
    run(calls, thread, ("1", "b"), checkpoint_ns="sub")
    assert calls.value("ckpt_delete_runs", ["b", "none"]) == 4
    assert parents(calls, thread) == {"1": None, "4": "1"}
    assert parents(calls, f"{thread}/other") == {"2": None}
    # Nothing is left of a namespace that is empty.
    assert calls.sql("SELECT checkpoint_ns FROM @s.checkpoint_heads WHERE thread_id = %s", thread) == [("",)]
    assert calls.value("ckpt_delete_runs", ["b"]) == 0


@pytest.mark.parametrize("copy", ["0/copy", "z/copy"])
def test_runs_are_deleted_from_a_copy_that_was_on_its_way(sessions, thread, copy):
    copier, deleter, observer = sessions(3)
    source, target = f"{thread}/m", f"{thread}/{copy}"
    run_id = f"run of {target}"
    run(copier, source, ("1", run_id))
    with copier.connection.transaction():
        copier.value("ckpt_copy_thread", source, target)
        waiting = Later(observer, deleter, "ckpt_delete_runs", [run_id])
    if target > source:
        assert waiting.value() == 2
    else:
        # It cannot lock what sorts before what it has locked.
        with refused("40001"):
            waiting.value()
        assert deleter.value("ckpt_delete_runs", [run_id]) == 2
    assert deleter.rows("ckpt_list", filter=json.dumps({"run_id": run_id})) == []


def test_the_latest_falls_back_to_its_nearest_kept_ancestor(calls, thread):
    run(calls, thread, ("1", "a"), ("2", "b"), ("3", "b"))
    calls.value("ckpt_put", thread, "{}", checkpoint_id="0", parent_checkpoint_id="")
    assert calls.row("ckpt_latest", thread).checkpoint_id == "3"
    calls.value("ckpt_delete_runs", ["b"])
    assert calls.row("ckpt_latest", thread).checkpoint_id == "1"
    # Without one: the newest accepted.
    calls.value("ckpt_delete_runs", ["a"])
    assert calls.row("ckpt_latest", thread).checkpoint_id == "0"


def test_a_fold_that_is_deleted_can_be_made_again(calls, thread):
    calls.value("ckpt_put", thread, '{"n": 0}', checkpoint_id="base", next=["t"])
    calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 1]]')
    fold = calls.value("ckpt_apply_writes", thread, metadata='{"run_id": "r"}')
    assert calls.value("ckpt_delete_runs", ["r"]) == 1
    resumed = calls.row("ckpt_resume", thread)
    assert (resumed.checkpoint_id, resumed.finished, resumed.todo) == ("base", "{}", ["t"])
    with refused("55000"):
        calls.value("ckpt_apply_writes", thread)
    calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 2]]')
    again = calls.value("ckpt_apply_writes", thread)
    assert again != fold
    assert calls.value("ckpt_channel", thread, "n") == "2"


def test_a_deleted_child_takes_only_what_it_consumed(calls, thread):
    put_typed(calls, thread, "base", {"a": 1}, {"a": b"0"})
    put_writes_typed(calls, thread, "base", "t", [("a", b"first")])
    put_typed(calls, thread, "child1", {"a": 2}, {"a": b"1"}, parent_checkpoint_id="base", metadata='{"run_id": "one"}')
    put_writes_typed(calls, thread, "base", "t", [("a", b"second")])
    put_typed(calls, thread, "child2", {"a": 2}, {"a": b"2"}, parent_checkpoint_id="base", metadata='{"run_id": "two"}')
    assert calls.value("ckpt_delete_runs", ["two"]) == 1
    left = [row.value for row in calls.rows("ckpt_get_typed", thread, checkpoint_id="base") if row.kind == "write"]
    assert left == [b"first"]


def sends(calls, thread, checkpoint_id):
    rows = calls.rows("ckpt_get_typed", thread, checkpoint_id=checkpoint_id)
    return [(row.task_id, row.value) for row in rows if row.kind == "send"]


@pytest.mark.parametrize("value", [b"send", b"long" * 1000], ids=["inline", "out of line"])
def test_queued_sends_stay_with_a_child_whose_parent_is_deleted(calls, thread, value):
    body = '{"v": 3}'
    put_typed(calls, thread, "0", {"a": 1}, {"a": b"0"}, body=body)
    put_writes_typed(calls, thread, "0", "t", [("__pregel_tasks", b"of the grandparent"), ("a", b"y")])
    put_typed(calls, thread, "1", {"a": 1}, {}, parent_checkpoint_id="0", body=body, metadata='{"run_id": "gone"}')
    put_writes_typed(calls, thread, "1", "t", [("__pregel_tasks", value), ("a", b"x")])
    put_typed(calls, thread, "2", {"a": 1}, {}, parent_checkpoint_id="1", body=body)
    put_writes_typed(calls, thread, "1", "t", [("__pregel_tasks", b"of the next child")])
    assert sends(calls, thread, "2") == [("t", value)]
    assert calls.value("ckpt_delete_runs", ["gone"]) == 1
    assert parents(calls, thread) == {"0": None, "2": "0"}
    assert sends(calls, thread, "2") == [("t", value)]
    # They are no writes of its own.
    assert [row for row in calls.rows("ckpt_get_typed", thread, checkpoint_id="2") if row.kind == "write"] == []
    assert calls.row("ckpt_latest", thread).pending_writes == 0
    # And it is no child that the writes of its new parent belong to.
    assert sends(calls, thread, "0") == []
    calls.value("ckpt_prune", [thread])
    assert (ids(calls, thread), sends(calls, thread, "2")) == (["2"], [("t", value)])
