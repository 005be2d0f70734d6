"""A session keeps working whatever happens to it: cancelled and timed-out calls, discarded plans, other protocols, calls
from triggers and generated columns, tables that change under its kept plans."""

import json

import msg_id
import psycopg
import pytest

from support import Calls, Later, refused

HELLO = '[{"role": "user", "content": "hello"}]'


def works(calls, thread):
    """A step from put to fold, and a message."""
    base = calls.value("ckpt_put", thread, json.dumps({"n": 0, "large": "x" * 3000}), next=["t"])
    assert calls.value("ckpt_put_writes", thread, base, "t", '[["n", 1]]') == 1
    assert calls.row("ckpt_resume", thread).todo == []
    made = calls.value("ckpt_apply_writes", thread, reducers='{"n": "sum"}')
    assert calls.value("ckpt_channel", thread, "n", made) == "1"
    [row] = calls.rows("ckpt_append", thread, json.dumps([{"role": "user", "content": made}]))
    assert row.inserted
    assert calls.rows("ckpt_window", thread)[-1].content == made


@pytest.mark.parametrize("function", ["ckpt_put", "ckpt_append"])
@pytest.mark.parametrize("end", ["cancelled", "timed out"])
@pytest.mark.needs_session
def test_a_call_that_ends_while_it_waits_changes_nothing(sessions, thread, function, end):
    holder, waiter, observer = sessions(3)
    arguments = (thread, "{}" if function == "ckpt_put" else HELLO)
    works(waiter, thread)
    before = waiter.rows("ckpt_list", thread), waiter.rows("ckpt_messages", thread)
    if end == "timed out":
        waiter.connection.execute("SET lock_timeout = '1ms'")
    with holder.connection.transaction(force_rollback=True):
        holder.rows(function, *arguments)
        if end == "timed out":
            with refused("55P03"):
                waiter.rows(function, *arguments)
            waiter.connection.execute("RESET lock_timeout")
        else:
            waiting = Later(observer, waiter, function, *arguments)
            observer.sql("SELECT pg_cancel_backend(%s)", waiter.connection.info.backend_pid)
            with refused("57014"):
                waiting.rows()
    assert (waiter.rows("ckpt_list", thread), waiter.rows("ckpt_messages", thread)) == before
    works(waiter, thread)


@pytest.mark.parametrize("statement", ["DISCARD ALL", "DISCARD PLANS", "RESET ALL", "DEALLOCATE ALL"])
@pytest.mark.needs_session
def test_a_session_that_a_pooler_cleans(calls, thread, statement):
    calls.connection.prepare_threshold = None
    for _ in range(3):
        works(calls, thread)
        calls.connection.execute(statement)


def test_a_session_whose_first_call_fails(sessions, thread):
    for function, arguments in (("ckpt_put", (thread, "[]")), ("ckpt_state", (thread,)), ("ckpt_fork", (thread, "x"))):
        [session] = sessions(1)
        with pytest.raises(psycopg.Error):
            session.rows(function, *arguments)
        works(session, f"{thread}/{function}")


def test_kept_plans_follow_the_tables(make_database, template, connection_to, thread):
    calls = Calls(connection_to(make_database(template)))
    for statement in (
        "ANALYZE",
        "ALTER TABLE checkpoints SET (fillfactor = 80)",
        "CREATE INDEX mine ON checkpoints (created_at)",
        "ALTER TABLE checkpoint_messages ADD COLUMN mine int",
        "VACUUM FULL checkpoint_blobs",
        "CLUSTER checkpoint_writes USING checkpoint_writes_pkey",
        "REINDEX TABLE checkpoint_heads",
        "ALTER TABLE checkpoint_messages DROP COLUMN mine",
        "DROP INDEX mine",
    ):
        works(calls, thread)
        calls.connection.execute(statement)
    works(calls, thread)


def test_the_binary_protocol(calls, thread):
    cursor = calls.connection.cursor(binary=True)
    value = '{"a": "\\u0000",  "n": 1.0}'
    for _ in range(7):
        cursor.execute("SELECT ckpt_put(%s::text, %b::json, next => %b::text[])", [thread, f'{{"c":{value}}}', ["x", "y"]])
        [made] = cursor.fetchone()
        assert calls.row("ckpt_latest", thread)[:3:2] == (made, ["x", "y"])
    assert calls.value("ckpt_channel", thread, "c") == value


@pytest.mark.needs_session
def test_prepared_statements_with_generic_plans(calls, thread):
    calls.connection.execute("SET plan_cache_mode = force_generic_plan")
    calls.connection.prepare_threshold = 0
    for _ in range(3):
        works(calls, thread)


def test_functions_of_ours_inside_functions_of_ours(make_database, template, connection_to, thread):
    calls = Calls(connection_to(make_database(template)))
    calls.connection.execute(
        """
        CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF new.thread_id NOT LIKE '%/audit' THEN
                PERFORM ckpt_append(new.thread_id || '/audit', json_build_array(new.message));
                PERFORM ckpt_put(new.thread_id || '/audit', json_build_object('last', new.seq));
            END IF;
            RETURN new;
        END $$
        """
    )
    calls.connection.execute("CREATE TRIGGER audit AFTER INSERT ON checkpoint_messages FOR EACH ROW EXECUTE FUNCTION audit()")
    messages = [{"role": "user", "content": str(number)} for number in range(5)]
    assert [row.seq for row in calls.rows("ckpt_append", thread, json.dumps(messages))] == [1, 2, 3, 4, 5]
    copied = [(row.seq, row.content) for row in calls.rows("ckpt_messages", f"{thread}/audit")]
    assert copied == [(number + 1, str(number)) for number in range(5)]
    assert json.loads(calls.value("ckpt_state", f"{thread}/audit")) == {"last": 5}
    assert len(calls.rows("ckpt_history", f"{thread}/audit")) == 5


def test_msg_id_in_a_generated_column_and_an_index(calls, thread):
    calls.connection.execute(
        "CREATE TABLE said (role text, body text, parts json, id text GENERATED ALWAYS AS (msg_id('t', role, body)) STORED UNIQUE)"
    )
    calls.connection.execute("CREATE UNIQUE INDEX said_by_parts ON said (msg_id('t', role, parts))")
    calls.connection.execute("INSERT INTO said VALUES ('user', 'hi', '[1.0]'), ('user', 'ho', '[2]')")
    assert {row[0] for row in calls.sql("SELECT id FROM said")} == {msg_id.of_text("t", "user", text) for text in ("hi", "ho")}
    for row in ("'user', 'hi', '[3]'", "'user', 'he', '[1]'"):
        with refused("23505"):
            calls.connection.execute(f"INSERT INTO said VALUES ({row})")
    calls.connection.execute("REINDEX TABLE said")
    calls.connection.execute("ANALYZE said")


def test_reading_functions_over_the_rows_of_a_query(calls, thread):
    for number in range(20):
        calls.value("ckpt_put", f"{thread}/{number:02}", json.dumps({"n": number}))
    rows = calls.sql(
        "SELECT l.thread_id, ckpt_channel(l.thread_id, 'n') FROM ckpt_list() l WHERE starts_with(l.thread_id, %s) ORDER BY 1",
        f"{thread}/",
    )
    assert rows == [(f"{thread}/{number:02}", str(number)) for number in range(20)]
    rows = calls.sql(
        "SELECT h.checkpoint_id = t.checkpoint_id FROM ckpt_list() l, ckpt_latest(l.thread_id) t, ckpt_history(l.thread_id) h "
        "WHERE starts_with(l.thread_id, %s)",
        f"{thread}/",
    )
    assert rows == [(True,)] * 20


def test_a_cursor_reads_a_part_of_a_result(calls, thread):
    calls.sql("SELECT ckpt_put(%s, '{}', checkpoint_id => to_char(n, 'FM000')) FROM generate_series(1, 300) n", thread)
    with calls.connection.transaction(), calls.connection.cursor("part") as cursor:
        cursor.execute("SELECT checkpoint_id FROM ckpt_history(%s)", [thread])
        assert [row[0] for row in cursor.fetchmany(3)] == ["300", "299", "298"]
        calls.value("ckpt_delete_thread", thread)
        assert [row[0] for row in cursor.fetchmany(2)] == ["297", "296"]


@pytest.mark.parametrize("setting", ["checkpointer.tennant", "checkpointer.x"])
@pytest.mark.needs_session
def test_a_setting_that_does_not_exist_is_refused(calls, setting):
    calls.rows("ckpt_list", max_rows=0)
    with pytest.raises(psycopg.Error):
        calls.connection.execute(f"SET {setting} = 'x'")


@pytest.mark.needs_session
def test_a_tenant_that_is_too_long_is_refused_by_every_call_that_would_use_it(calls, thread):
    calls.sql("SELECT set_config('checkpointer.tenant', %s, false)", "é" * 32)
    for function, arguments in (("ckpt_put", (thread, "{}")), ("ckpt_list", ()), ("ckpt_append", (thread, HELLO))):
        with refused("22023") as refusal:
            calls.rows(function, *arguments)
        assert "checkpointer.tenant" in refusal.message
    calls.sql("SELECT set_config('checkpointer.tenant', %s, false)", "é" * 31 + "x")
    works(calls, thread)


@pytest.mark.needs_session
def test_an_argument_over_the_size_limit_is_refused_before_it_is_read(calls, thread):
    calls.connection.execute("SET checkpointer.max_json_size = '2kB'")
    fits, too_large = '"' + "x" * 1500 + '"', '"' + "x" * 2100 + '"'
    calls.value("ckpt_put", thread, f'{{"a": {fits}}}', next=["t"], checkpoint_id="1")
    for function, arguments in (
        ("ckpt_put", (thread, f'{{"a": {too_large}, "a": 1}}')),
        ("ckpt_put", (thread, "{}", f'{{"a": {too_large}}}')),
        ("ckpt_put_writes", (thread, "1", "t", f'[["a", {too_large}]]')),
        ("ckpt_apply_writes", (thread, "", None, None, "{}", [], f'{{"a": {too_large}}}')),
        ("ckpt_append", (thread, f'[{{"role": "user", "content": {too_large}}}]')),
        ("ckpt_window", (thread, 1, None, f'{{"role": "user", "content": {too_large}}}')),
    ):
        with refused("54000") as refusal:
            calls.rows(function, *arguments)
        assert refusal.hint
    assert calls.value("ckpt_channel", thread, "a") == fits
