"""A call is one unit inside its caller's transaction, with savepoints, errors and rollbacks."""

import json

from support import Calls, connect, refused

HELLO = '[{"role": "user", "content": "hello"}]'


def snapshot(calls, thread):
    names = ("ckpt_history", "ckpt_resume", "ckpt_messages", "ckpt_window")
    return {name: calls.rows(name, thread) for name in names}


def test_others_see_a_transaction_whole_or_not_at_all(sessions, thread):
    one, other = sessions(2)
    with one.connection.transaction():
        base = one.value("ckpt_put", thread, json.dumps({"a": "x" * 5000}), next=["t"])
        one.value("ckpt_put_writes", thread, base, "t", '[["a", 1]]')
        one.rows("ckpt_append", thread, HELLO)
        assert other.row("ckpt_latest", thread) is None
        assert other.rows("ckpt_messages", thread) == []
    assert other.row("ckpt_resume", thread).finished == '{"t": [["a", 1]]}'
    assert [row.content for row in other.rows("ckpt_messages", thread)] == ["hello"]


def test_a_rollback_leaves_everything_as_it_was(calls, thread):
    base = calls.value("ckpt_put", thread, '{"a": 1}', next=["t"])
    calls.rows("ckpt_append", thread, HELLO)
    before = snapshot(calls, thread)
    with calls.connection.transaction(force_rollback=True):
        calls.value("ckpt_put_writes", thread, base, "t", '[["a", 2]]')
        calls.value("ckpt_apply_writes", thread)
        calls.value("ckpt_fork", thread, base)
        calls.value("ckpt_rewind", thread, 0)
        calls.value("ckpt_delete_thread", thread)
        calls.value("ckpt_put", thread, '{"b": 1}')
    assert snapshot(calls, thread) == before


def test_a_savepoint_takes_back_what_came_after_it(calls, thread):
    with calls.connection.transaction():
        first = calls.value("ckpt_put", thread, '{"n": 1}', next=["t"])
        calls.rows("ckpt_append", thread, HELLO)
        before = snapshot(calls, thread)
        with calls.connection.transaction(force_rollback=True):
            calls.value("ckpt_put_writes", thread, first, "t", '[["n", 2]]')
            calls.value("ckpt_apply_writes", thread)
            calls.rows("ckpt_append", thread, '[{"role": "user", "content": "undone"}]')
        assert snapshot(calls, thread) == before
        second = calls.value("ckpt_put", thread, '{"n": 3}')
        [row] = calls.rows("ckpt_append", thread, '[{"role": "user", "content": "kept"}]')
        assert row.seq == 2
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread)] == [second, first]
    assert [row.content for row in calls.rows("ckpt_messages", thread)] == ["hello", "kept"]


def test_a_refused_call_changes_nothing_and_its_savepoint_lets_the_caller_go_on(calls, thread):
    refusals = [
        ("22023", "ckpt_put", (thread, '{"a": 1, "a": 2}')),
        ("P0002", "ckpt_put", (thread, "{}", "{}", [], "", None, "unknown")),
        ("40001", "ckpt_put", (thread, "{}", "{}", [], "", None, None, "unknown")),
        ("23505", "ckpt_put_writes", (thread, "base", "t", '[["a", 3]]')),
        ("22023", "ckpt_put_writes", (thread, "base", "u", '[["a", 1], ["b"]]')),
        ("55000", "ckpt_apply_writes", (thread, "", "base", ["missing"])),
        ("22023", "ckpt_apply_writes", (thread, "", "base", None, '{"a": "sum"}')),
        ("P0002", "ckpt_fork", (thread, "unknown")),
        ("22023", "ckpt_append", (thread, '[{"role": "user", "content": "x"}, {"content": "y"}]')),
        ("23505", "ckpt_append", (thread, '[{"role": "user", "content": "x"}, {"id": "m", "role": "user", "content": "z"}]')),
        ("22023", "ckpt_rewind", (thread, -1)),
    ]
    calls.value("ckpt_put", thread, '{"a": 1}', next=["t"], checkpoint_id="base")
    calls.value("ckpt_put_writes", thread, "base", "t", '[["a", "text"]]')
    calls.rows("ckpt_append", thread, '[{"id": "m", "role": "user", "content": "y"}]')
    before = snapshot(calls, thread)
    with calls.connection.transaction():
        for sqlstate, function, arguments in refusals:
            with refused(sqlstate), calls.connection.transaction():
                calls.rows(function, *arguments)
            assert snapshot(calls, thread) == before, function
        calls.value("ckpt_apply_writes", thread)
    assert calls.value("ckpt_channel", thread, "a") == '"text"'


def test_calls_in_one_statement_see_each_other(calls, thread):
    rows = calls.sql("SELECT ckpt_put(%s, json_build_object('n', n)) FROM generate_series(1, 5) n", thread)
    ids = [row[0] for row in rows]
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread)] == ids[::-1]
    rows = calls.sql(
        "SELECT a.seq FROM generate_series(1, 5) n, "
        "ckpt_append(%s, json_build_array(json_build_object('role', 'user', 'content', n::text))) a",
        thread,
    )
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5]


def test_calls_in_a_plpgsql_function_with_an_exception_handler(calls, thread):
    calls.connection.execute(
        """
        CREATE FUNCTION run(thread text) RETURNS text LANGUAGE plpgsql AS $$
        DECLARE base text := ckpt_put(thread, '{"a": 0}', next => '{t}');
        BEGIN
            BEGIN
                PERFORM ckpt_put_writes(thread, base, 't', '[["a", 1]]');
                PERFORM ckpt_apply_writes(thread, tasks => '{missing}');
            EXCEPTION WHEN object_not_in_prerequisite_state THEN
                PERFORM ckpt_put_writes(thread, base, 't', '[["a", 2]]');
            END;
            RETURN ckpt_apply_writes(thread);
        END $$
        """
    )
    made = calls.sql("SELECT run(%s)", thread)[0][0]
    assert calls.row("ckpt_latest", thread).checkpoint_id == made
    assert calls.value("ckpt_channel", thread, "a") == "2"


def test_an_effect_and_its_log_entry_are_one_unit(calls, thread):
    calls.connection.execute("CREATE TABLE effects (what text)")
    base = calls.value("ckpt_put", thread, "{}", next=["t"])
    for attempt in range(2):
        with calls.connection.transaction(force_rollback=attempt == 0):
            calls.connection.execute("INSERT INTO effects VALUES ('paid')")
            assert calls.value("ckpt_put_writes", thread, base, "t", '[["paid", true]]') == 1
    assert calls.sql("SELECT what FROM effects") == [("paid",)]
    assert calls.row("ckpt_resume", thread).todo == []


def test_behind_a_transaction_pooler_every_call_may_go_over_another_connection(uri, database, thread):
    def call(function, *args, **named):
        # No state of a session is needed: not even a prepared statement lives from one call to the next.
        with connect(uri(database), prepare_threshold=None) as connection:
            return Calls(connection).rows(function, *args, **named)

    [[base]] = call("ckpt_put", thread, '{"a": 1}', next=["t"])
    call("ckpt_put_writes", thread, base, "t", '[["a", 2]]')
    [resumed] = call("ckpt_resume", thread)
    assert (resumed.checkpoint_id, resumed.todo) == (base, [])
    [[made]] = call("ckpt_apply_writes", thread)
    assert call("ckpt_channel", thread, "a", made) == [("2",)]
