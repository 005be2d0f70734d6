"""Saving a turn again is a no-op: each message is in the log once, in its place, however often and in what pieces it is sent."""

import json

import msg_id
import pytest

from support import refused


def user(text, **more):
    return {"role": "user", "content": text, **more}


def append(calls, thread, *messages, turn=None, **named):
    return [tuple(row) for row in calls.rows("ckpt_append", thread, json.dumps(messages), turn, **named)]


def log(calls, thread):
    return [(row.seq, row.content) for row in calls.rows("ckpt_messages", thread)]


def test_a_retried_append_gives_the_same_answer_and_writes_nothing(calls, thread):
    messages = [user("a"), {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, user("b", id="own")]
    first = append(calls, thread, *messages)
    assert [(seq, inserted) for seq, _, inserted in first] == [(1, True), (2, True), (3, True)]
    rows = "SELECT ctid::text, xmin::text, t::text FROM checkpoint_messages t WHERE thread_id = %s ORDER BY seq"
    before = calls.sql(rows, thread)
    assert append(calls, thread, *messages) == [(seq, identifier, False) for seq, identifier, _ in first]
    assert calls.sql(rows, thread) == before


def test_a_client_that_resends_the_whole_history_adds_only_what_is_new(calls, thread):
    history = [user(text) for text in ("hi", "yes", "more", "yes", "yes", "end", "hi")]
    for length in range(1, len(history) + 1):
        rows = append(calls, thread, *history[:length])
        assert [(seq, inserted) for seq, _, inserted in rows] == [(at + 1, at + 1 == length) for at in range(length)]
    assert log(calls, thread) == [(at + 1, message["content"]) for at, message in enumerate(history)]


def test_occurrences_are_counted_over_equal_bodies_whatever_their_spelling(calls, thread):
    messages = ['{"role":"user","content":"yes"}', '{"content": "\\u0079es", "role": "user", "id": null, "ephemeral": false}']
    rows = calls.rows("ckpt_append", thread, "[" + ",".join(messages * 2) + "]")
    assert [row.msg_id for row in rows] == [msg_id.of_text(thread, "user", "yes", occurrence=n) for n in range(4)]
    assert [row.message for row in calls.rows("ckpt_messages", thread)] == messages * 2


def test_the_same_words_in_another_turn_are_another_message(calls, thread):
    for turn in (None, "1", "2"):
        for attempt in range(2):
            [(_, _, inserted)] = append(calls, thread, user("yes"), turn=turn)
            assert inserted == (attempt == 0)
    assert append(calls, thread, user("yes"), turn="")[0][2] is False
    rows = calls.rows("ckpt_messages", thread)
    assert [(row.seq, row.turn, row.msg_id) for row in rows] == [
        (at + 1, turn, msg_id.of_text(thread, "user", "yes", turn)) for at, turn in enumerate(("", "1", "2"))
    ]


def test_honest_repeats_of_empty_content_and_equal_results_are_kept(calls, thread):
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "2"}]},
        {"role": "tool", "tool_call_id": "2", "content": "ok"},
    ]
    for message in messages:
        [(_, _, inserted)] = append(calls, thread, message)
        assert inserted
    assert [row.seq for row in calls.rows("ckpt_messages", thread)] == [1, 2, 3, 4]


@pytest.mark.parametrize("on_conflict, text", [("keep", "first"), ("replace", "second")])
def test_other_content_of_an_own_id(calls, thread, on_conflict, text):
    append(calls, thread, user("before"), user("first", id="m"), user("after"))
    created = [row.created_at for row in calls.rows("ckpt_messages", thread)]
    with refused("23505") as refusal:
        append(calls, thread, user("new"), user("second", id="m"))
    assert '"m"' in refusal.message
    assert refusal.hint
    rows = append(calls, thread, user("second", id="m"), user("new"), on_conflict=on_conflict)
    assert [(seq, inserted) for seq, _, inserted in rows] == [(2, False), (4, True)]
    assert log(calls, thread) == [(1, "before"), (2, text), (3, "after"), (4, "new")]
    assert [row.created_at for row in calls.rows("ckpt_messages", thread)][:3] == created


def test_an_own_id_is_known_in_every_turn_and_in_another_spelling(calls, thread):
    append(calls, thread, user("x", id="m", n=1.0), turn="1")
    [row] = calls.rows("ckpt_append", thread, '[{"n": 10e-1, "content": "\\u0078", "role": "user", "id": "m"}]', "2")
    assert row == (1, "m", False)


def test_one_call_with_two_contents_of_one_id(calls, thread):
    with refused("23505"):
        append(calls, thread, user("a", id="m"), user("b", id="m"))
    assert log(calls, thread) == []
    rows = append(calls, thread, user("a", id="m"), user("b", id="m"), user("c"), on_conflict="replace")
    assert [(seq, inserted) for seq, _, inserted in rows] == [(1, True), (1, False), (2, True)]
    assert log(calls, thread) == [(1, "b"), (2, "c")]


def test_ephemeral_messages_are_dropped_and_count_as_no_occurrence(calls, thread):
    rows = append(calls, thread, user("a", ephemeral=True), user("a"), user("a", ephemeral=False), user("b", ephemeral=True))
    assert [identifier for _, identifier, _ in rows] == [msg_id.of_text(thread, "user", "a", occurrence=n) for n in (0, 1)]
    assert log(calls, thread) == [(1, "a"), (2, "a")]
    assert append(calls, thread, user("c", ephemeral=True)) == []
    assert append(calls, thread) == []


def test_one_bad_message_stores_none(calls, thread):
    for bad in ({"content": "no role"}, {"role": "", "content": "x"}, {"role": 1, "content": "x"}, "text", {"role": "user", "id": 1}):
        with refused("22023") as refusal:
            append(calls, thread, user("good"), bad, user("good too"))
        assert "$[1]" in refusal.message
    assert log(calls, thread) == []


def test_a_seq_is_not_used_again_after_a_rewind(calls, thread):
    append(calls, thread, *(user(str(number)) for number in range(5)))
    assert calls.value("ckpt_rewind", thread, 2) == 3
    assert calls.value("ckpt_rewind", thread, 2) == 0
    assert [row[0] for row in append(calls, thread, user("4"), user("new"))] == [6, 7]
    assert calls.value("ckpt_rewind", thread, 0) == 4
    assert append(calls, thread, user("0"))[0][0] == 8
    assert log(calls, thread) == [(8, "0")]
    assert calls.value("ckpt_rewind", f"{thread}/unknown", 0) == 0


def test_a_refused_append_leaves_no_gap(calls, thread):
    append(calls, thread, user("a", id="m"))
    with refused("23505"):
        append(calls, thread, user("b"), user("c", id="m"))
    assert [row[0] for row in append(calls, thread, user("d"), user("a", id="m"), user("e"))] == [2, 1, 3]


def test_a_page_of_the_log(calls, thread):
    append(calls, thread, *(user(str(number)) for number in range(1, 10)))

    def page(*args, **named):
        return [row.seq for row in calls.rows("ckpt_messages", thread, *args, **named)]

    assert page(after=3) == [4, 5, 6, 7, 8, 9]
    assert page(before=3) == [1, 2]
    assert page(3, 7) == [4, 5, 6]
    assert page(3, 7, 2) == [4, 5]
    assert page(max_rows=0) == []
    assert page(7, 3) == []
    assert page(-5, 2**63 - 1) == list(range(1, 10))
