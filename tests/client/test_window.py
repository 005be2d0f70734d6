"""Windows of a message log, against a reference of their own and by hand."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import Calls, connect
from window_reference import window

SAMPLES = Path(__file__).parents[2] / "examples" / "resume" / "samples.jsonl"
RECORDED = [json.loads(line) for line in SAMPLES.read_text().split("\n") if line]
SIZES = (0, 1, 2, 3, 5, 7, 60)


def selected(calls, thread, **options):
    """The window as (kind, place in the log)."""
    for name in ("current", "preamble"):
        if options.get(name) is not None:
            options[name] = json.dumps(options[name])
    rows = calls.rows("ckpt_window", thread, **options)
    assert [row.ordinal for row in rows] == list(range(1, len(rows) + 1))
    return [(row.kind, None if row.seq is None else row.seq - 1) for row in rows]


def store(calls, thread, log):
    for place, message in enumerate(log):
        calls.rows("ckpt_append", thread, json.dumps([message]), str(place))


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def call(*ids):
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "function": {"name": "f"}} for id in ids]}


def result(id):
    return {"role": "tool", "tool_call_id": id, "content": f"result of {id}"}


@pytest.mark.parametrize("conversation", RECORDED, ids=lambda c: str(c["id"]))
def test_each_sample_cut_at_each_message(calls, thread, conversation):
    log = []
    for message in conversation["messages"]:
        log.append(message)
        calls.rows("ckpt_append", thread, json.dumps([message]), str(len(log)))
        for size in SIZES:
            assert selected(calls, thread, size=size) == window(log, size), (len(log), size)


ids = st.sampled_from(["1", "2", "3"])
messages = st.one_of(
    st.just(user("u")),
    st.just(answer("a")),
    st.lists(ids, min_size=1, max_size=3).map(lambda some: call(*some)),
    ids.map(result),
    st.just({"role": "system", "content": "s"}),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(log=st.lists(messages, max_size=25), size=st.sampled_from(SIZES), data=st.data())
def test_any_log_gives_the_window_of_the_reference(thread_of, log, size, data):
    calls, thread = thread_of()
    store(calls, thread, log)
    assert selected(calls, thread, size=size) == window(log, size)
    tail = data.draw(st.integers(1, 3))
    for current in ([user("new")], log[-tail:] or [user("new")]):
        assert selected(calls, thread, size=size, current=current, marker=False) == window(log, size, current, marker=False)


@pytest.fixture(scope="module")
def thread_of(database, uri):
    """Makes a new thread for each example of a property test."""
    with connect(uri(database)) as connection:
        numbers = iter(range(1_000_000))
        yield lambda: (Calls(connection), f"example {next(numbers)}")


def test_what_is_shown_of_a_long_exchange_does_not_depend_on_how_long_it_is(calls, thread):
    """More messages than are fetched at once, with calls at the edges."""
    log = [user("begin")]
    for step in range(400):
        log += [call(f"{step}a", f"{step}b"), result(f"{step}a"), result(f"{step}b")]
    log += [answer("done"), user("and now?")]
    store(calls, thread, log)
    for size in (1, 2, 5, 31, 32, 33, 64, 65, 500):
        assert selected(calls, thread, size=size) == window(log, size), size
    assert len(selected(calls, thread, size=2_000)) == len(log) + 1


def test_a_log_without_a_user_is_one_exchange(calls, thread):
    log = [answer("hello")] + [answer(f"{n}") for n in range(200)]
    store(calls, thread, log)
    assert selected(calls, thread, size=3) == window(log, 3) == [("final", place) for place in range(len(log))]
    current = [user("hi")]
    assert selected(calls, thread, size=3, current=current) == window(log, 3, current)


def test_the_preamble_comes_first_and_is_never_stored(calls, thread):
    store(calls, thread, [user("1"), answer("2"), user("3")])
    preamble = [{"role": "system", "content": "secret instructions"}, {"role": "user", "content": "secret memory"}]
    rows = calls.rows("ckpt_window", thread, preamble=json.dumps(preamble))
    assert [row.kind for row in rows] == ["preamble", "preamble", "message", "message", "marker", "final"]
    assert [json.loads(row.message) for row in rows[:2]] == preamble
    assert [(row.seq, row.msg_id) for row in rows[:2]] == [(None, None)] * 2
    assert calls.sql("SELECT count(*) FROM @s.checkpoint_messages m WHERE m.message::text ~ 'secret'")[0][0] == 0


def test_the_marker_names_the_exchange_before_the_final_turn(calls, thread):
    store(calls, thread, [user("Who wrote Dune?"), answer("Frank Herbert."), user("When?")])
    marker = calls.rows("ckpt_window", thread, size=0)[0]
    assert (marker.kind, marker.role) == ("marker", "user")
    assert "Who wrote Dune?" in marker.content
    assert json.loads(marker.message) == {"role": "user", "content": marker.content}
    assert [row.kind for row in calls.rows("ckpt_window", thread, marker=False)] == ["message", "message", "final"]


def test_the_final_turn_is_whole_even_with_calls_that_wait_for_their_results(calls, thread):
    log = [user("1"), answer("2"), user("3"), call("a", "b"), result("a")]
    store(calls, thread, log)
    assert selected(calls, thread, size=1) == [("message", 0), ("marker", None), ("final", 2), ("final", 3), ("final", 4)]


def test_no_window_shows_half_an_exchange_of_calls(calls, thread):
    """Anthropic's form: results come in user messages, which open no exchange."""
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
    results = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"}]}
    log = [user("1"), use, results, answer("so"), user("2")]
    store(calls, thread, log)
    assert selected(calls, thread, size=4) == [("message", n) for n in range(4)] + [("marker", None), ("final", 4)]
    assert selected(calls, thread, size=3) == [("message", 0), ("message", 3), ("marker", None), ("final", 4)]


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "r"}


@pytest.mark.parametrize("stored", [2, 3])
def test_a_tool_result_as_current_comes_with_the_exchange_that_called_it(calls, thread, stored):
    store(calls, thread, [user("earlier"), answer("a"), *[user("q"), CALL, RESULT][:stored]])
    window = selected(calls, thread, current=RESULT)
    last = None if stored == 2 else 4
    assert window == [("message", 0), ("message", 1), ("marker", None), ("final", 2), ("final", 3), ("final", last)]


def test_what_of_current_the_log_has_already_is_not_repeated(calls, thread):
    store(calls, thread, [user("earlier"), answer("a"), user("q")])
    assert selected(calls, thread, current=[user("q"), answer("b")]) == [
        ("message", 0), ("message", 1), ("marker", None), ("final", 2), ("final", None)
    ]  # fmt: skip


def test_many_calls_in_one_message_are_one_group(calls, thread):
    many = 20_000
    asked = {"role": "assistant", "tool_calls": [{"id": str(n), "function": {"name": "f", "arguments": ""}} for n in range(many)]}
    results = [{"role": "tool", "tool_call_id": str(n), "content": "r"} for n in range(many)]
    calls.rows("ckpt_append", thread, json.dumps([user("q"), asked, *results, user("next")]))
    # The question, the calls, their results, the marker and the final turn; or, of one message less, the question alone.
    assert len(calls.rows("ckpt_window", thread, many + 2)) == many + 4
    assert [row.kind for row in calls.rows("ckpt_window", thread, many + 1)] == ["message", "marker", "final"]
