"""Reading writes nothing: every reading function works on a hot standby, in a READ ONLY transaction, in a parallel worker,
and takes no transaction id."""

import psycopg
import pytest

from answers import answers, fill
from support import Calls, connect, refused, wait_until

READING = {
    "ckpt_latest": "SELECT checkpoint_id FROM ckpt_latest('fill-1')",
    "ckpt_channel inline": "SELECT ckpt_channel('fill-1', 'count')",
    "ckpt_channel out of line": "SELECT ckpt_channel('fill-1', 'messages')",
    "ckpt_state": "SELECT ckpt_state('fill-1')",
    "ckpt_state of some channels": "SELECT ckpt_state('fill-1', channels => '{messages,count}')",
    "ckpt_resume": "SELECT todo FROM ckpt_resume('fill-1')",
    "ckpt_history": "SELECT checkpoint_id FROM ckpt_history('fill-1')",
    "ckpt_list": "SELECT checkpoint_id FROM ckpt_list()",
    "ckpt_list of a thread": "SELECT checkpoint_id FROM ckpt_list('fill-1', before => 'z')",
    "ckpt_list by metadata": "SELECT checkpoint_id FROM ckpt_list(filter => '{\"at\": 1}')",
    "ckpt_messages": "SELECT seq FROM ckpt_messages('fill-1')",
    "ckpt_window": "SELECT ordinal FROM ckpt_window('fill-1', 4)",
    "ckpt_load": "SELECT ckpt_load('\"fill-1\"', 4)::text",
    "ckpt_strip": "SELECT ckpt_strip('<think>a</think>b')",
    "ckpt_tokens": "SELECT ckpt_tokens('a b'), ckpt_check_markup('tag', 'a', 'text', NULL)",
    "msg_id": "SELECT msg_id('t', 'user', 'x'::text), msg_id('t', 'user', '{}'::json) AS of_json",
}
WRITING = [
    "SELECT ckpt_put('fill-1', '{}')",
    "SELECT ckpt_put_writes('fill-1', 'x', 'x', '[]')",
    "SELECT ckpt_apply_writes('fill-1')",
    "SELECT ckpt_fork('fill-1', (SELECT checkpoint_id FROM ckpt_latest('fill-1')))",
    "SELECT ckpt_append('fill-1', '[{\"role\": \"user\", \"content\": \"new\"}]')",
    "SELECT ckpt_summary_due('fill-1', 4)",
    "SELECT ckpt_put_summary('fill-1', 1, 'short')",
    "SELECT ckpt_rewind('fill-1', 1)",
    "SELECT ckpt_delete_thread('fill-1')",
    "SELECT ckpt_grant('pg_monitor', 'read')",
    "SELECT ckpt_revoke('pg_monitor')",
]
every_reading_call = pytest.mark.parametrize("statement", READING.values(), ids=READING.keys())


@pytest.fixture(scope="module")
def threads(uri, database):
    with connect(uri(database)) as connection:
        return fill(Calls(connection))


@every_reading_call
def test_works_in_a_read_only_transaction(calls, threads, statement):
    expected = calls.connection.execute(statement).fetchall()
    assert expected
    calls.connection.execute("BEGIN TRANSACTION READ ONLY")
    assert calls.connection.execute(statement).fetchall() == expected
    calls.connection.execute("COMMIT")


@every_reading_call
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_takes_no_transaction_id(calls, threads, statement, isolation):
    calls.connection.execute(f"BEGIN TRANSACTION ISOLATION LEVEL {isolation}")
    assert calls.connection.execute(statement).fetchall()
    assert calls.sql("SELECT pg_current_xact_id_if_assigned()") == [(None,)]
    # Had it taken one, this would have shown it.
    calls.sql("SELECT pg_current_xact_id()")
    assert calls.sql("SELECT pg_current_xact_id_if_assigned() IS NOT NULL") == [(True,)]
    calls.connection.execute("ROLLBACK")


@pytest.mark.parametrize("statement", WRITING)
def test_a_writing_function_is_refused_in_a_read_only_transaction(calls, threads, statement):
    with refused("25006"), calls.connection.transaction():
        calls.connection.execute("SET TRANSACTION READ ONLY")
        calls.connection.execute(statement)


PARALLEL = {name: statement for name, statement in READING.items() if " FROM " not in statement}


@pytest.mark.parametrize("statement", PARALLEL.values(), ids=PARALLEL.keys())
@pytest.mark.parametrize("tenant", ["", "acme"])
@pytest.mark.needs_session
def test_works_in_a_parallel_worker(calls, threads, statement, tenant):
    calls.sql("SELECT set_config('checkpointer.tenant', %s, false)", tenant)
    if tenant:
        calls.value("ckpt_put", "fill-1", '{"count": "of acme", "messages": [0]}')
    expected = calls.connection.execute(statement).fetchall()
    setting = "debug_parallel_query" if calls.connection.info.server_version >= 160000 else "force_parallel_mode"
    calls.connection.execute(f"SET {setting} = on")
    plan = "\n".join(row[0] for row in calls.connection.execute(f"EXPLAIN {statement}"))
    assert "Gather" in plan
    assert calls.connection.execute(statement).fetchall() == expected


@pytest.fixture
def primary_and_standby(make_cluster):
    """Calls on a filled primary and on its streaming standby, which has replayed all, and the threads."""
    primary = make_cluster().init().start()
    standby = make_cluster().copy(primary).start()
    with connect(primary.uri()) as writer, connect(standby.uri()) as reader:
        writer.execute("CREATE EXTENSION checkpointer")
        threads = fill(Calls(writer))
        written = writer.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()[0]
        replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until("the standby has replayed all", lambda: reader.execute(replayed, [written]).fetchone()[0])
        assert reader.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
        yield Calls(writer), Calls(reader), threads


def test_a_standby_gives_the_answers_of_its_primary(primary_and_standby):
    primary, standby, threads = primary_and_standby
    assert answers(standby, threads) == answers(primary, threads)


def test_a_writing_function_is_refused_on_a_standby(primary_and_standby):
    _, standby, _ = primary_and_standby
    codes = {}
    for statement in WRITING:
        with pytest.raises(psycopg.Error) as refusal:
            standby.connection.execute(statement)
        codes[statement] = refusal.value.sqlstate
    assert codes == dict.fromkeys(WRITING, "25006")
