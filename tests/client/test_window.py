"""Windows of a message log, against a reference of their own and by hand."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations import CONVERSATIONS, SHORT
from support import refused
from tokens_reference import of_message, of_text
from window_reference import TooSmall, calls_of, window

SIZES = (0, 1, 2, 3, 5, 7, 60)


def shown(calls, thread, **options):
    """The window as (kind, place in the log, tokens)."""
    for name in ("current", "preamble"):
        if options.get(name) is not None:
            options[name] = json.dumps(options[name])
    rows = calls.rows("ckpt_window", thread, **options)
    assert [row.ordinal for row in rows] == list(range(1, len(rows) + 1))
    return [(row.kind, None if row.seq is None else row.seq - 1, row.tokens) for row in rows]


def selected(calls, thread, **options):
    """What of the conversation is shown, as (kind, place in the log)."""
    return [(kind, place) for kind, place, _ in shown(calls, thread, **options) if kind != "summary"]


def expected(log, size, *args, **options):
    return [(kind, place) for kind, place, _ in window(log, size, *args, **options) if kind != "summary"]


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


@pytest.mark.parametrize("conversation", SHORT, ids=lambda c: str(c["id"]))
def test_each_sample_cut_at_each_message(calls, thread, conversation):
    log = []
    for message in conversation["messages"]:
        log.append(message)
        calls.rows("ckpt_append", thread, json.dumps([message]), str(len(log)))
        for size in SIZES:
            assert shown(calls, thread, size=size) == window(log, size), (len(log), size)


def no_exchange_is_halved(log, places):
    """What is shown before the final turn begins with a message that opens an exchange, and each call has its results."""
    assert not places or log[places[0]]["role"] == "user" or places[0] == 0
    awaited = []
    for message in (log[place] for place in places):
        if message["role"] == "tool":
            awaited.remove(message["tool_call_id"])
        else:
            assert awaited == []
            awaited = calls_of(message)
    assert awaited == []


def budgets(log, size):
    """From one token too few to more than enough."""
    whole = window(log, size)
    fixed = sum(tokens for kind, _, tokens in whole if kind in ("marker", "final"))
    every = sum(tokens for _, _, tokens in whole)
    return sorted({max(fixed - 1, 1), fixed, fixed + 60, (fixed + every) // 2, every - 1, every} - {0})


def test_every_window_over_the_recorded_conversations(calls):
    """Each conversation cut at each turn, with and without budgets, is what the reference shows; no exchange is halved."""
    compared = 0
    for at, conversation in enumerate(CONVERSATIONS):
        thread, log = f"recorded-{at}", []
        for message in conversation["messages"]:
            log.append(message)
            calls.rows("ckpt_append", thread, json.dumps([message]), str(len(log)))
            if message["role"] != "user":
                continue
            for size in (2, 7, 60):
                for most in (None, *budgets(log, size)):
                    compared += 1
                    place = (conversation["id"], len(log), size, most)
                    try:
                        reference = window(log, size, max_tokens=most)
                    except TooSmall as small:
                        with refused("54000") as refusal:
                            shown(calls, thread, size=size, max_tokens=most)
                        assert re.search(r"needs (\d+) tokens more", refusal.message)[1] == str(small), place
                        continue
                    rows = shown(calls, thread, size=size, max_tokens=most)
                    assert rows == reference, place
                    assert most is None or sum(tokens for _, _, tokens in rows) <= most, place
                    no_exchange_is_halved(log, [place for kind, place, _ in rows if kind == "message"])
    assert compared > 300


ids = st.sampled_from(["1", "2", "3"])
messages = st.one_of(
    st.just(user("u")),
    st.just(answer("a")),
    st.lists(ids, min_size=1, max_size=3).map(lambda some: call(*some)),
    ids.map(result),
    st.just({"role": "system", "content": "s"}),
)


numbers = iter(range(1_000_000))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(log=st.lists(messages, max_size=25), size=st.sampled_from(SIZES), data=st.data())
def test_any_log_gives_the_window_of_the_reference(module_calls, log, size, data):
    calls, thread = module_calls, f"example {next(numbers)}"
    store(calls, thread, log)
    assert shown(calls, thread, size=size) == window(log, size)
    tail = data.draw(st.integers(1, 3))
    most = data.draw(st.integers(1, 200))
    for current in ([user("new")], log[-tail:] or [user("new")]):
        assert shown(calls, thread, size=size, current=current, marker=False) == window(log, size, current, marker=False)
        try:
            reference = window(log, size, current, max_tokens=most)
        except TooSmall:
            with refused("54000"):
                shown(calls, thread, size=size, current=current, max_tokens=most)
        else:
            assert shown(calls, thread, size=size, current=current, max_tokens=most) == reference


def test_what_is_shown_of_a_long_exchange_does_not_depend_on_how_long_it_is(calls, thread):
    """More messages than are fetched at once, with calls at the edges."""
    log = [user("begin")]
    for step in range(400):
        log += [call(f"{step}a", f"{step}b"), result(f"{step}a"), result(f"{step}b")]
    log += [answer("done"), user("and now?")]
    store(calls, thread, log)
    for size in (1, 2, 5, 31, 32, 33, 64, 65, 500):
        assert selected(calls, thread, size=size) == expected(log, size), size
    assert len(selected(calls, thread, size=2_000)) == len(log) + 1


def test_a_log_without_a_user_is_one_exchange(calls, thread):
    log = [answer("hello")] + [answer(f"{n}") for n in range(200)]
    store(calls, thread, log)
    assert selected(calls, thread, size=3) == expected(log, 3) == [("final", place) for place in range(len(log))]
    current = [user("hi")]
    assert shown(calls, thread, size=3, current=current) == window(log, 3, current)


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
    marker = calls.rows("ckpt_window", thread, size=0)[1]
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
    last = None if stored == 2 else 4
    assert selected(calls, thread, current=RESULT) == [("message", 0), ("message", 1), ("marker", None), ("final", 2), ("final", 3), ("final", last)]  # fmt: skip


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


def test_what_lies_before_the_window_is_named(calls, thread):
    log = [user("Book me a flight"), answer("Done."), user("And a hotel"), answer("Done."), user("Thanks"), answer("Bye."), user("One more")]
    store(calls, thread, log)
    before = calls.rows("ckpt_window", thread, size=2)[0]
    assert (before.kind, before.role) == ("summary", "system")
    assert before.content == (
        "[4 earlier messages are not shown. In them the user said, the latest last:\n"
        '- "Book me a flight"\n- "And a hotel"]'
    )
    assert json.loads(before.message) == {"role": "system", "content": before.content}
    assert before.tokens == of_text(before.content)
    assert calls.rows("ckpt_window", thread, size=6)[0].kind == "message"


def test_over_the_budget_the_summary_goes_first_then_whole_exchanges(calls, thread):
    log = [user("one"), answer("1"), user("two"), answer("2"), user("three"), answer("3"), user("four")]
    store(calls, thread, log)
    rows = shown(calls, thread, size=4)
    weights = {kind: sum(tokens for k, _, tokens in rows if k == kind) for kind in ("summary", "message", "marker", "final")}
    fixed = weights["marker"] + weights["final"]
    all_but_the_summary = [("message", 2), ("message", 3), ("message", 4), ("message", 5), ("marker", None), ("final", 6)]
    for most, kept in (
        (fixed + weights["message"] + weights["summary"], [("summary", None), *all_but_the_summary]),
        (fixed + weights["message"] + weights["summary"] - 1, all_but_the_summary),
        (fixed + weights["message"], all_but_the_summary),
        (fixed + weights["message"] - 1, [("message", 4), ("message", 5), ("marker", None), ("final", 6)]),
        (fixed, [("marker", None), ("final", 6)]),
    ):
        found = [(kind, place) for kind, place, _ in shown(calls, thread, size=4, max_tokens=most)]
        # The newest exchange is cut where it does not fit: here its opening may stay.
        assert [row for row in found if row != ("message", 4)] == [row for row in kept if row != ("message", 4)] or found == kept
    with refused("54000") as refusal:
        shown(calls, thread, size=4, max_tokens=fixed - 1)
    assert "needs 1 tokens more" in refusal.message


def test_the_preamble_counts_and_is_never_left_out(calls, thread):
    store(calls, thread, [user("one"), answer("1"), user("two")])
    preamble = {"role": "system", "content": "Be brief, and polite."}
    fixed = of_message(preamble) + of_text("two")
    rows = shown(calls, thread, preamble=preamble, marker=False, max_tokens=fixed)
    assert rows == [("preamble", None, of_message(preamble)), ("final", 2, 1)]
    with refused("54000"):
        shown(calls, thread, preamble=preamble, marker=False, max_tokens=fixed - 1)


@pytest.mark.parametrize("most", [0, -1])
def test_a_budget_of_nothing_is_refused(calls, thread, most):
    with refused("22023") as refusal:
        shown(calls, thread, max_tokens=most)
    assert str(most) in refusal.message


any_role = st.sampled_from(["user", "human", "assistant", "ai", "tool", "function", "system", "developer", "robot"])
any_content = st.sampled_from([None, "", "words", ["a", {"type": "text", "text": "b"}], [], {"odd": 1}, 7, "<think>x", "<think>x</think>"])
any_calls = st.lists(st.fixed_dictionaries({"id": ids, "function": st.just({"name": "f", "arguments": "{}"})}), max_size=2)
any_message = st.fixed_dictionaries(
    {"role": any_role, "content": any_content},
    optional={"tool_calls": any_calls, "tool_call_id": ids, "id": st.sampled_from(["m1", "m2", "m3"]), "ephemeral": st.booleans()},
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(log=st.lists(any_message, max_size=20), size=st.integers(0, 8), most=st.integers(1, 120), current=st.none() | any_message)
def test_any_history_whatever_gives_a_valid_window_or_a_clear_error(module_calls, log, size, most, current):
    calls, thread = module_calls, f"whatever {next(numbers)}"
    stored = {}
    for at, message in enumerate(log):
        try:
            calls.rows("ckpt_append", thread, json.dumps([message]), str(at), on_conflict="keep")
        except Exception as error:
            assert error.sqlstate == "22023"
    for row in calls.rows("ckpt_messages", thread):
        stored[row.seq] = row
    current_json = None if current is None else json.dumps(current)
    for budget in (None, most):
        try:
            rows = calls.rows("ckpt_window", thread, size=size, max_tokens=budget, current=current_json)
        except Exception as error:
            assert error.sqlstate == "54000" and budget is not None
            continue
        assert budget is None or sum(row.tokens for row in rows) <= budget
        seqs = [row.seq for row in rows if row.seq is not None]
        assert len(seqs) == len(set(seqs)), "a message twice"
        assert seqs == sorted(seqs) and set(seqs) <= stored.keys()
        assert sum(row.kind == "message" for row in rows) <= size
        kinds = ["preamble", "summary", "message", "marker", "final"]
        assert [kinds.index(row.kind) for row in rows] == sorted(kinds.index(row.kind) for row in rows)


def test_ten_thousand_messages(calls, thread):
    log = []
    for turn in range(2_500):
        log += [user(f"question {turn}"), call(f"c{turn}"), result(f"c{turn}"), answer(f"answer {turn}")]
    calls.rows("ckpt_append", thread, json.dumps(log))
    rows = shown(calls, thread, size=60)
    assert rows == window(log, 60)
    assert [row[1] for row in rows if row[0] == "message"] == list(range(9_936, 9_996))
