"""Under REPEATABLE READ and SERIALIZABLE a session that goes on from what is no longer so gets 40001, and can retry."""

import pytest

from support import Calls, refused

STATE_CHANGES = {
    "put": lambda calls, thread: calls.value("ckpt_put", thread, '{"count": 5}'),
    "put_writes": lambda calls, thread: calls.value("ckpt_put_writes", thread, "base", "b", '[["count", 10]]'),
    "apply_writes": lambda calls, thread: calls.value("ckpt_apply_writes", thread, checkpoint_id="base"),
    "fork": lambda calls, thread: calls.value("ckpt_fork", thread, "base"),
    "delete": lambda calls, thread: calls.value("ckpt_delete_thread", thread),
}
LOG_CHANGES = {
    "append": lambda calls, thread: calls.rows("ckpt_append", thread, '[{"role": "user", "content": "new"}]'),
    "replace": lambda calls, thread: calls.rows(
        "ckpt_append", thread, '[{"id": "m", "role": "user", "content": "edit"}]', on_conflict="replace"
    ),
    "rewind": lambda calls, thread: calls.value("ckpt_rewind", thread, 0),
    "delete": lambda calls, thread: calls.value("ckpt_delete_thread", thread),
}

isolations = pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])


@pytest.fixture
def filled(calls, thread):
    calls.value("ckpt_put", thread, '{"count": 1}', next=["a"], checkpoint_id="base")
    calls.value("ckpt_put_writes", thread, "base", "a", '[["count", 2]]')
    calls.rows("ckpt_append", thread, '[{"id": "m", "role": "user", "content": "first"}]')
    return calls


def stale(session, isolation):
    """Opens a transaction whose snapshot is that of now."""
    session.connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    session.sql("SELECT count(*) FROM @s.checkpoints")


def loses_and_retries(session, change, thread):
    with refused("40001"):
        change(session, thread)
    session.connection.execute("ROLLBACK")
    session.connection.execute("BEGIN")
    change(session, thread)
    session.connection.execute("COMMIT")


@isolations
@pytest.mark.parametrize("late", [name for name in STATE_CHANGES if name != "put_writes"])
@pytest.mark.parametrize("early", ["put", "put_writes"])
def test_a_late_change_of_the_state(filled, sessions, thread, isolation, early, late):
    [session] = sessions(1)
    stale(session, isolation)
    STATE_CHANGES[early](filled, thread)
    loses_and_retries(session, STATE_CHANGES[late], thread)


@isolations
def test_late_writes_on_a_base_that_was_folded(filled, sessions, thread, isolation):
    [session] = sessions(1)
    stale(session, isolation)
    STATE_CHANGES["apply_writes"](filled, thread)
    with refused("40001"):
        STATE_CHANGES["put_writes"](session, thread)
    session.connection.execute("ROLLBACK")
    with refused("55000"):
        STATE_CHANGES["put_writes"](session, thread)


@isolations
def test_late_writes_beside_others(filled, sessions, thread, isolation):
    [session] = sessions(1)
    stale(session, isolation)
    filled.value("ckpt_put_writes", thread, "base", "c", '[["count", 3]]')
    loses_and_retries(session, STATE_CHANGES["put_writes"], thread)
    assert filled.row("ckpt_latest", thread).pending_writes == 3


@isolations
def test_a_late_fold_gets_the_checkpoint_of_the_first_when_it_retries(filled, sessions, thread, isolation):
    [session] = sessions(1)
    stale(session, isolation)
    made = STATE_CHANGES["apply_writes"](filled, thread)
    with refused("40001"):
        STATE_CHANGES["apply_writes"](session, thread)
    session.connection.execute("ROLLBACK")
    assert STATE_CHANGES["apply_writes"](session, thread) == made


@isolations
@pytest.mark.parametrize("late", LOG_CHANGES)
@pytest.mark.parametrize("early", ["append", "replace"])
def test_a_late_change_of_the_log(filled, sessions, thread, isolation, early, late):
    [session] = sessions(1)
    stale(session, isolation)
    if (early, late) == ("append", "append"):
        filled.rows("ckpt_append", thread, '[{"role": "user", "content": "another"}]')
    elif (early, late) == ("replace", "replace"):
        filled.rows("ckpt_append", thread, '[{"id": "m", "role": "user", "content": "other"}]', on_conflict="replace")
    else:
        LOG_CHANGES[early](filled, thread)
    loses_and_retries(session, LOG_CHANGES[late], thread)


@isolations
def test_a_late_append_of_the_same_message(filled, sessions, thread, isolation):
    [session] = sessions(1)
    stale(session, isolation)
    [(seq, msg_id, _)] = LOG_CHANGES["append"](filled, thread)
    with refused("40001"):
        LOG_CHANGES["append"](session, thread)
    session.connection.execute("ROLLBACK")
    assert LOG_CHANGES["append"](session, thread) == [(seq, msg_id, False)]


@isolations
@pytest.mark.parametrize("change", ["put", "put_writes", "append"])
def test_the_first_touch_of_a_thread_that_another_session_touched_first(calls, sessions, thread, isolation, change):
    [session] = sessions(1)
    stale(session, isolation)
    calls.value("ckpt_put", thread, "{}", checkpoint_id="theirs")
    calls.rows("ckpt_append", thread, '[{"role": "user", "content": "theirs"}]')
    loses_and_retries(session, (STATE_CHANGES | LOG_CHANGES)[change], thread)


@isolations
def test_changes_of_other_threads_are_no_race(filled, sessions, thread, isolation):
    session, other = sessions(2)
    stale(session, isolation)
    for change in [*STATE_CHANGES.values(), *LOG_CHANGES.values()]:
        other.value("ckpt_put", f"{thread}/other", "{}", next=["a"], checkpoint_id="base")
        other.value("ckpt_put_writes", f"{thread}/other", "base", "a", '[["count", 2]]')
        change(other, f"{thread}/other")
    for name in ("put_writes", "apply_writes", "put", "fork"):
        STATE_CHANGES[name](session, thread)
    for change in LOG_CHANGES.values():
        change(session, thread)
    session.connection.execute("COMMIT")
    assert filled.count("checkpoints", thread) == 0


@isolations
def test_a_whole_run_works_in_one_transaction(connection_to, database, thread, isolation):
    calls = Calls(connection_to(database))
    calls.connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    base = calls.value("ckpt_put", thread, '{"count": 1}', next=["a"])
    for number in range(10):
        calls.value("ckpt_put_writes", thread, base, "a", '[["count", 1]]')
        made = calls.value("ckpt_apply_writes", thread, reducers='{"count": "sum"}', next=["a"])
        assert made != base
        base = made
        calls.rows("ckpt_append", thread, f'[{{"role": "user", "content": "{number}"}}]')
        assert calls.value("ckpt_channel", thread, "count") == str(number + 2)
    calls.connection.execute("COMMIT")
    assert len(calls.rows("ckpt_history", thread)) == 11
    assert [row.seq for row in calls.rows("ckpt_messages", thread)] == list(range(1, 11))


@isolations
def test_a_reader_sees_one_moment(filled, sessions, thread, isolation):
    [session] = sessions(1)
    stale(session, isolation)
    before = session.rows("ckpt_history", thread), session.rows("ckpt_window", thread), session.rows("ckpt_resume", thread)
    STATE_CHANGES["apply_writes"](filled, thread)
    LOG_CHANGES["append"](filled, thread)
    after = session.rows("ckpt_history", thread), session.rows("ckpt_window", thread), session.rows("ckpt_resume", thread)
    assert after == before
    session.connection.execute("COMMIT")
    assert len(session.rows("ckpt_history", thread)) == 2


@isolations
@pytest.mark.parametrize("first", ["put", "put_writes", "put elsewhere", "append"])
@pytest.mark.parametrize("call", ["ckpt_bind", "ckpt_delete_thread", "block"])
def test_a_call_on_a_whole_thread_sees_all_of_it_or_loses(calls, sessions, thread, isolation, first, call):
    calls.value("ckpt_define_graph", "private", '{"secret": {"persist": false}}')
    [session] = sessions(1)
    stale(session, isolation)
    if first == "put elsewhere":
        calls.value("ckpt_put", thread, "{}", checkpoint_ns="sub")
    else:
        (STATE_CHANGES | LOG_CHANGES)[first](calls, thread)

    def on_the_whole(session):
        if call == "ckpt_bind":
            session.value("ckpt_bind", thread, "private")
        elif call == "block":
            session.sql("SELECT @s.ckpt_delete_thread(%s, '1 hour')", thread)
        else:
            session.value("ckpt_delete_thread", thread)

    with refused("40001"):
        on_the_whole(session)
    session.connection.execute("ROLLBACK")
    on_the_whole(session)
    if call == "ckpt_bind":
        for ns in ("", "sub"):
            calls.value("ckpt_put", thread, '{"secret": 1, "a": 2}', checkpoint_ns=ns)
            assert calls.value("ckpt_state", thread, checkpoint_ns=ns) == '{"a": 2}'
    else:
        assert calls.count("checkpoint_heads", thread) == calls.count("checkpoint_logs", thread) == 0
