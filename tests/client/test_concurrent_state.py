"""Several sessions write the state of one thread at once: nothing is lost, nothing happens twice."""

import json
import threading

import psycopg
import pytest

from support import Later, at_once, refused

CLIENTS = 8
ROUNDS = 25
SUM = {"reducers": '{"count": "sum", "list": "append"}'}


def base_with_writes(calls, thread):
    base = calls.value("ckpt_put", thread, '{"count": 0, "list": []}', next=["a"])
    calls.value("ckpt_put_writes", thread, base, "a", '[["count", 1], ["list", "a"]]')
    return base


def chain(calls, thread):
    """Checkpoint ids from the latest to the root."""
    return [row.checkpoint_id for row in calls.rows("ckpt_history", thread)]


@pytest.mark.parametrize("names_its_base", [True, False])
def test_two_folds_at_once_make_one_checkpoint_and_both_get_its_id(sessions, thread, names_its_base):
    one, two = sessions(2)
    for round_number in range(ROUNDS):
        name = f"{thread}/{round_number}"
        base = base_with_writes(one, name)
        named = SUM | ({"checkpoint_id": base} if names_its_base else {})
        ids = at_once([lambda s=session: s.value("ckpt_apply_writes", name, **named) for session in (one, two)])
        assert ids[0] == ids[1] != base
        assert chain(one, name) == [ids[0], base]
        assert json.loads(one.value("ckpt_state", name)) == {"count": 1, "list": ["a"]}


@pytest.mark.parametrize("names_its_base", [True, False])
def test_a_fold_that_waited_for_another_gets_its_checkpoint(sessions, thread, names_its_base):
    one, two, observer = sessions(3)
    base = base_with_writes(one, thread)
    named = SUM | ({"checkpoint_id": base} if names_its_base else {})
    with one.connection.transaction():
        made = one.value("ckpt_apply_writes", thread, **named)
        waiting = Later(observer, two, "ckpt_apply_writes", thread, **named)
    assert waiting.value() == made != base
    assert chain(one, thread) == [made, base]
    assert one.value("ckpt_channel", thread, "count") == "1"


def test_a_fold_that_waited_for_one_that_was_rolled_back_does_it_itself(sessions, thread):
    one, two, observer = sessions(3)
    base = base_with_writes(one, thread)
    with one.connection.transaction(force_rollback=True):
        undone = one.value("ckpt_apply_writes", thread, **SUM)
        waiting = Later(observer, two, "ckpt_apply_writes", thread, **SUM)
    made = waiting.value()
    assert made not in (base, undone)
    assert chain(one, thread) == [made, base]
    assert one.value("ckpt_channel", thread, "count") == "1"


@pytest.mark.parametrize("namespace", ["", "child"])
def test_eight_first_puts_of_one_thread_make_one_chain(sessions, thread, namespace):
    clients = sessions(CLIENTS)
    ids = at_once(
        [lambda c=client, n=at: c.value("ckpt_put", thread, f'{{"n": {n}}}', checkpoint_ns=namespace) for at, client in enumerate(clients)]
    )
    rows = clients[0].rows("ckpt_history", thread, checkpoint_ns=namespace)
    assert [row.checkpoint_id for row in rows] == sorted(ids, reverse=True)
    assert rows[-1].parent_checkpoint_id is None
    for at, identifier in enumerate(ids):
        assert clients[0].value("ckpt_channel", thread, "n", identifier, namespace) == str(at)


def test_eight_first_writes_of_one_thread_are_all_there(sessions, thread):
    clients = sessions(CLIENTS)
    stored = at_once(
        [lambda c=client, n=at: c.value("ckpt_put_writes", thread, "later", f"t{n}", f'[["n", {n}]]') for at, client in enumerate(clients)]
    )
    assert stored == [1] * CLIENTS
    clients[0].value("ckpt_put", thread, "{}", next=[f"t{n}" for n in range(CLIENTS)], checkpoint_id="later")
    resumed = clients[0].row("ckpt_resume", thread)
    assert json.loads(resumed.finished) == {f"t{n}": [["n", n]] for n in range(CLIENTS)}
    assert resumed.todo == []


def test_thirty_threads_log_thirty_tasks(sessions, thread):
    clients = sessions(30)
    tasks = [f"task-{number:02}" for number in range(30)]
    base = clients[0].value("ckpt_put", thread, '{"list": []}', next=tasks)
    start = threading.Barrier(len(clients))

    def log(client, task):
        start.wait()
        return client.value("ckpt_put_writes", thread, base, task, json.dumps([["list", task], ["list", task + "'"]]))

    assert at_once([lambda c=c, t=t: log(c, t) for c, t in zip(clients, tasks, strict=True)]) == [2] * 30
    resumed = clients[0].row("ckpt_resume", thread)
    assert json.loads(resumed.finished) == {task: [["list", task], ["list", task + "'"]] for task in tasks}
    assert clients[0].row("ckpt_latest", thread).pending_writes == 60
    clients[0].value("ckpt_apply_writes", thread, **SUM)
    assert json.loads(clients[0].value("ckpt_channel", thread, "list")) == [t + end for t in tasks for end in ("", "'")]


@pytest.mark.parametrize("fence", ["first", ""])
def test_of_puts_behind_the_same_fence_one_wins(sessions, thread, fence):
    clients = sessions(CLIENTS)
    if fence:
        clients[0].value("ckpt_put", thread, "{}", checkpoint_id=fence)
    results = at_once(
        [lambda c=client, n=at: c.value("ckpt_put", thread, f'{{"n": {n}}}', expected_latest=fence) for at, client in enumerate(clients)]
    )
    winners = [(at, result) for at, result in enumerate(results) if isinstance(result, str)]
    losers = [result for result in results if isinstance(result, psycopg.Error)]
    assert len(winners) == 1
    assert [loser.sqlstate for loser in losers] == ["40001"] * (CLIENTS - 1)
    [(at, made)] = winners
    assert chain(clients[0], thread) == [made] + ([fence] if fence else [])
    assert clients[0].value("ckpt_channel", thread, "n") == str(at)


def test_a_put_that_waited_sees_the_fence_as_it_is_then(sessions, thread):
    one, two, observer = sessions(3)
    first = one.value("ckpt_put", thread, "{}")
    with one.connection.transaction():
        second = one.value("ckpt_put", thread, "{}", expected_latest=first)
        waiting = Later(observer, two, "ckpt_put", thread, "{}", expected_latest=first)
    with refused("40001"):
        waiting.value()
    assert chain(one, thread) == [second, first]


def test_the_same_put_from_eight_clients_is_one_checkpoint(sessions, thread):
    clients = sessions(CLIENTS)
    put = {"checkpoint_id": "chosen", "metadata": '{"a": 1}', "next": ["x"]}
    results = at_once([lambda c=client: c.value("ckpt_put", thread, '{"a": 1}', **put) for client in clients])
    assert results == ["chosen"] * CLIENTS
    [row] = clients[0].rows("ckpt_history", thread)
    assert (row.checkpoint_id, row.parent_checkpoint_id, row.next) == ("chosen", None, ["x"])


def test_eight_contents_of_one_id_leave_one_of_them_whole(sessions, thread):
    clients = sessions(CLIENTS)

    def put(client, number):
        large = f"{number}" * 5000
        state = json.dumps({"n": number, "large": large})
        return client.value("ckpt_put", thread, state, json.dumps({"n": number}), [f"{number}"], checkpoint_id="chosen")

    assert at_once([lambda c=client, n=at: put(c, n) for at, client in enumerate(clients)]) == ["chosen"] * CLIENTS
    [row] = clients[0].rows("ckpt_history", thread)
    number = json.loads(row.metadata)["n"]
    assert row.next == [f"{number}"]
    assert json.loads(clients[0].value("ckpt_state", thread)) == {"n": number, "large": f"{number}" * 5000}
    assert clients[0].count("checkpoint_blobs", thread) == 1


def test_a_write_that_races_a_fold_is_folded_or_refused_but_never_lost(sessions, thread):
    one, two = sessions(2)
    for round_number in range(2 * ROUNDS):
        name = f"{thread}/{round_number}"
        base = base_with_writes(one, name)
        made, stored = at_once(
            [
                lambda: one.value("ckpt_apply_writes", name, checkpoint_id=base, **SUM),
                lambda: two.value("ckpt_put_writes", name, base, "b", '[["list", "b"]]'),
            ]
        )
        folded = json.loads(one.value("ckpt_channel", name, "list", made))
        if stored == 1:
            assert folded == ["a", "b"]
        else:
            assert stored.sqlstate == "55000"
            assert folded == ["a"]
            assert one.sql("SELECT 1 FROM @s.checkpoint_writes WHERE thread_id = %s AND task_id = 'b'", name) == []


def test_a_write_before_an_open_fold_is_in_it(sessions, thread):
    one, two, observer = sessions(3)
    base = base_with_writes(one, thread)
    with one.connection.transaction():
        one.value("ckpt_put_writes", thread, base, "b", '[["list", "b"]]')
        waiting = Later(observer, two, "ckpt_apply_writes", thread, **SUM)
    made = waiting.value()
    assert json.loads(one.value("ckpt_channel", thread, "list", made)) == ["a", "b"]


def test_a_write_after_an_open_fold_is_refused_if_the_fold_stands(sessions, thread):
    one, two, observer = sessions(3)
    base = base_with_writes(one, thread)
    with one.connection.transaction():
        one.value("ckpt_apply_writes", thread, **SUM)
        waiting = Later(observer, two, "ckpt_put_writes", thread, base, "b", '[["list", "b"]]')
    with refused("55000"):
        waiting.value()


def test_a_write_after_an_open_fold_is_stored_if_the_fold_is_rolled_back(sessions, thread):
    one, two, observer = sessions(3)
    base = base_with_writes(one, thread)
    with one.connection.transaction(force_rollback=True):
        one.value("ckpt_apply_writes", thread, **SUM)
        waiting = Later(observer, two, "ckpt_put_writes", thread, base, "b", '[["list", "b"]]')
    assert waiting.value() == 1
    made = one.value("ckpt_apply_writes", thread, **SUM)
    assert json.loads(one.value("ckpt_channel", thread, "list", made)) == ["a", "b"]


@pytest.mark.parametrize("same", [True, False])
def test_two_batches_of_one_task_at_once_are_never_mixed(sessions, thread, same):
    one, two = sessions(2)
    batches = ['[["x", 1], ["y", 1]]', '[["x", 1], ["y", 1]]' if same else '[["x", 2]]']
    for round_number in range(ROUNDS):
        name = f"{thread}/{round_number}"
        base = one.value("ckpt_put", name, "{}", next=["t"])
        results = at_once(
            [lambda s=s, b=b: s.value("ckpt_put_writes", name, base, "t", b) for s, b in zip((one, two), batches, strict=True)]
        )
        finished = json.loads(one.row("ckpt_resume", name).finished)
        if same:
            assert sorted(results) == [0, 2]
            assert finished == {"t": [["x", 1], ["y", 1]]}
        else:
            [loser] = [at for at, result in enumerate(results) if not isinstance(result, int)]
            assert results[loser].sqlstate == "23505"
            assert finished == {"t": json.loads(batches[1 - loser])}


def test_a_deletion_and_a_waiting_put_leave_the_put_alone(sessions, thread):
    one, two, observer = sessions(3)
    base_with_writes(one, thread)
    with one.connection.transaction():
        assert one.value("ckpt_delete_thread", thread) == 1
        waiting = Later(observer, two, "ckpt_put", thread, '{"after": true}')
    made = waiting.value()
    [row] = one.rows("ckpt_history", thread)
    assert (row.checkpoint_id, row.parent_checkpoint_id, row.pending_writes) == (made, None, 0)
    assert one.count("checkpoints", thread) == 1


def test_a_waiting_deletion_takes_what_was_put_meanwhile(sessions, thread):
    one, two, observer = sessions(3)
    base_with_writes(one, thread)
    with one.connection.transaction():
        one.value("ckpt_put", thread, json.dumps({"large": "x" * 5000}))
        waiting = Later(observer, two, "ckpt_delete_thread", thread)
    assert waiting.value() == 2
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "checkpoint_heads"):
        assert one.count(table, thread) == 0


def test_a_reader_never_waits_and_sees_all_or_nothing_of_a_transaction(sessions, thread):
    writer, reader = sessions(2)
    reader.connection.execute("SET statement_timeout = '60s'")
    base = base_with_writes(writer, thread)
    with writer.connection.transaction():
        made = writer.value("ckpt_apply_writes", thread, **SUM)
        assert reader.row("ckpt_latest", thread).checkpoint_id == base
        assert reader.row("ckpt_resume", thread).todo == []
        assert reader.value("ckpt_channel", thread, "count") == "0"
        assert chain(reader, thread) == [base]
    assert chain(reader, thread) == [made, base]


@pytest.mark.parametrize(
    "held, function, arguments",
    [
        ("checkpoint_writes", "ckpt_put", {"state": '{"big": "%s"}' % ("x" * 5000), "checkpoint_ns": "new"}),
        ("checkpoint_writes", "ckpt_append", {"messages": '[{"role": "user", "content": "first"}]'}),
    ],
)
def test_what_begins_during_a_deletion_begins_after_it_or_is_told_to_retry(sessions, thread, held, function, arguments):
    holder, deleter, newcomer, observer = sessions(4)
    base_with_writes(holder, thread)
    with holder.connection.transaction():
        # The deletion has taken its locks and gone through some of the tables when the newcomer begins.
        holder.sql(f"SELECT 1 FROM @s.{held} WHERE thread_id = %s FOR UPDATE", thread)
        deletion = Later(observer, deleter, "ckpt_delete_thread", thread)
        with refused("40001"):
            newcomer.rows(function, thread, **arguments)
    assert deletion.value() == 1
    newcomer.rows(function, thread, **arguments)
    if function == "ckpt_put":
        assert json.loads(newcomer.value("ckpt_state", thread, checkpoint_ns="new")) == {"big": "x" * 5000}
        assert newcomer.row("ckpt_latest", thread, "new") is not None
    else:
        [row] = newcomer.rows("ckpt_append", thread, '[{"role": "user", "content": "second"}]')
        assert row.seq == 2


def test_deletions_and_first_puts_at_once_never_wait_for_each_other(sessions, thread):
    clients = sessions(4)

    def work(calls, number):
        for turn in range(60):
            if number % 2:
                calls.value("ckpt_delete_thread", thread)
                continue
            try:
                calls.value("ckpt_put", thread, json.dumps({"large": f"{number}{turn}" * 1000}))
            except psycopg.errors.SerializationFailure as error:
                # It began while a deletion was on its way for longer than it waits.
                assert "is being deleted" in str(error)

    assert at_once([lambda c=client, n=at: work(c, n) for at, client in enumerate(clients)]) == [None] * 4
    for row in clients[0].rows("ckpt_list", thread):
        clients[0].value("ckpt_state", thread, row.checkpoint_id)
