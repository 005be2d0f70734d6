"""Several sessions write the log of one thread at once: seqs are 1..n without a gap, each message is there once."""

import json

import pytest

from support import Later, at_once, refused

CLIENTS = 8
BATCHES = 12


def message(text, **more):
    return {"role": "user", "content": text, **more}


def append(calls, thread, messages, turn=None, on_conflict="error"):
    return [tuple(row) for row in calls.rows("ckpt_append", thread, json.dumps(messages), turn, on_conflict)]


def log(calls, thread):
    return [(row.seq, row.content) for row in calls.rows("ckpt_messages", thread)]


def test_distinct_messages_of_eight_clients_are_each_there_once_and_in_their_order(sessions, thread):
    clients = sessions(CLIENTS)

    def work(client, number):
        batches = [[message(f"{number}/{batch}/{at}") for at in range(3)] for batch in range(BATCHES)]
        return [append(client, thread, batch) for batch in batches]

    results = at_once([lambda c=client, n=at: work(c, n) for at, client in enumerate(clients)])
    found = log(clients[0], thread)
    assert [seq for seq, _ in found] == list(range(1, CLIENTS * BATCHES * 3 + 1))
    where = {text: seq for seq, text in found}
    assert len(where) == len(found)
    for number, batches in enumerate(results):
        for batch, rows in enumerate(batches):
            # A batch is one unit: its messages stand together.
            first = rows[0][0]
            assert [(seq, inserted) for seq, _, inserted in rows] == [(first + at, True) for at in range(3)]
            assert [where[f"{number}/{batch}/{at}"] for at in range(3)] == [first, first + 1, first + 2]
        order = [rows[0][0] for rows in batches]
        assert order == sorted(order)


def test_equal_messages_of_eight_clients_are_there_once_and_all_get_the_same_answer(sessions, thread):
    clients = sessions(CLIENTS)
    messages = [message(str(number)) for number in range(10)]
    results = at_once([lambda c=client: [append(c, thread, messages) for _ in range(3)] for client in clients])
    answers = [answer for result in results for answer in result]
    assert log(clients[0], thread) == [(number + 1, str(number)) for number in range(10)]
    assert {tuple((seq, msg_id) for seq, msg_id, _ in answer) for answer in answers} == {
        tuple((row.seq, row.msg_id) for row in clients[0].rows("ckpt_messages", thread))
    }
    for at in range(10):
        assert sum(answer[at][2] for answer in answers) == 1


def test_overlapping_messages_in_any_order_are_there_once(sessions, thread):
    clients = sessions(CLIENTS)

    def work(client, number):
        texts = [str((number * 7 + step * 5) % 40) for step in range(40)]
        return [row for text in texts for row in append(client, thread, [message(text), message("x" + text)])]

    results = at_once([lambda c=client, n=at: work(c, n) for at, client in enumerate(clients)])
    found = log(clients[0], thread)
    assert [seq for seq, _ in found] == list(range(1, 81))
    assert {text for _, text in found} == {prefix + str(number) for number in range(40) for prefix in ("", "x")}
    inserted = [seq for rows in results for seq, _, inserted in rows if inserted]
    assert sorted(inserted) == list(range(1, 81))


def test_eight_first_appends_of_one_thread(sessions, thread):
    clients = sessions(CLIENTS)
    for round_number in range(10):
        name = f"{thread}/{round_number}"
        rows = at_once([lambda c=client, n=at: append(c, name, [message(str(n))]) for at, client in enumerate(clients)])
        assert sorted(seq for [(seq, _, _)] in rows) == list(range(1, CLIENTS + 1))


def test_an_append_that_waited_for_the_same_message_finds_it(sessions, thread):
    one, two, observer = sessions(3)
    with one.connection.transaction():
        [(seq, msg_id, _)] = append(one, thread, [message("yes")])
        waiting = Later(observer, two, "ckpt_append", thread, json.dumps([message("yes"), message("no")]))
    assert [tuple(row) for row in waiting.rows()][0] == (seq, msg_id, False)
    assert log(one, thread) == [(1, "yes"), (2, "no")]


def test_an_append_that_waited_for_one_that_was_rolled_back_takes_its_place(sessions, thread):
    one, two, observer = sessions(3)
    with one.connection.transaction(force_rollback=True):
        append(one, thread, [message("yes"), message("undone")])
        waiting = Later(observer, two, "ckpt_append", thread, json.dumps([message("yes")]))
    assert [(row.seq, row.inserted) for row in waiting.rows()] == [(1, True)]
    append(one, thread, [message("no")])
    assert log(one, thread) == [(1, "yes"), (2, "no")]


@pytest.mark.parametrize("on_conflict, expected", [("error", None), ("keep", "one"), ("replace", "two")])
def test_an_append_that_waited_for_another_content_of_its_id_follows_on_conflict(sessions, thread, on_conflict, expected):
    one, two, observer = sessions(3)
    with one.connection.transaction():
        append(one, thread, [message("one", id="m")])
        batch = json.dumps([message("two", id="m"), message("tail")])
        waiting = Later(observer, two, "ckpt_append", thread, batch, on_conflict=on_conflict)
    if expected is None:
        with refused("23505"):
            waiting.rows()
        assert log(one, thread) == [(1, "one")]
    else:
        assert [(row.seq, row.inserted) for row in waiting.rows()] == [(1, False), (2, True)]
        assert log(one, thread) == [(1, expected), (2, "tail")]


def test_a_rewind_and_a_waiting_append_use_no_seq_twice(sessions, thread):
    one, two, observer = sessions(3)
    append(one, thread, [message(str(number)) for number in range(5)])
    with one.connection.transaction():
        assert one.value("ckpt_rewind", thread, 2) == 3
        waiting = Later(observer, two, "ckpt_append", thread, json.dumps([message("4"), message("new")]))
    # What was rewound is not known any more.
    assert [(row.seq, row.inserted) for row in waiting.rows()] == [(6, True), (7, True)]
    assert log(one, thread) == [(1, "0"), (2, "1"), (6, "4"), (7, "new")]


def test_a_waiting_rewind_takes_what_was_appended_meanwhile(sessions, thread):
    one, two, observer = sessions(3)
    append(one, thread, [message("0"), message("1")])
    with one.connection.transaction():
        append(one, thread, [message("2")])
        waiting = Later(observer, two, "ckpt_rewind", thread, 1)
    assert waiting.value() == 2
    assert log(one, thread) == [(1, "0")]


def test_a_deletion_and_a_waiting_append_leave_the_append_alone(sessions, thread):
    one, two, observer = sessions(3)
    append(one, thread, [message("0"), message("1")])
    with one.connection.transaction():
        assert one.value("ckpt_delete_thread", thread) == 2
        waiting = Later(observer, two, "ckpt_append", thread, json.dumps([message("1"), message("2")]))
    assert [row.inserted for row in waiting.rows()] == [True, True]
    assert [text for _, text in log(one, thread)] == ["1", "2"]


@pytest.mark.parametrize("appends", [1, 2, 3])
def test_a_message_of_a_log_that_was_made_anew_while_its_append_waited_is_appended(sessions, thread, appends):
    one, two, observer = sessions(3)
    append(one, thread, [message("said before")])
    with one.connection.transaction():
        one.value("ckpt_delete_thread", thread)
        for number in range(appends):
            append(one, thread, [message(f"of the new log {number}")])
        waiting = Later(observer, two, "ckpt_append", thread, json.dumps([message("said before"), message("more")]))
    assert [row.inserted for row in waiting.rows()] == [True, True]
    assert [text for _, text in log(one, thread)][appends:] == ["said before", "more"]


def test_a_window_during_an_open_append_shows_what_is_committed(sessions, thread):
    writer, reader = sessions(2)
    append(writer, thread, [message("0")])
    with writer.connection.transaction():
        append(writer, thread, [message("1"), message("2")])
        assert [row.content for row in reader.rows("ckpt_window", thread) if row.kind == "final"] == ["0"]
        assert [row.content for row in writer.rows("ckpt_window", thread) if row.kind == "final"] == ["2"]
