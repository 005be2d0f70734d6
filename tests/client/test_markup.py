"""Cleaning: the shipped rules, rules of one's own, and what is never touched."""

import json

import pytest

from marked_up import ANSWERS
from support import refused
from tokens_reference import of_text


def owner(calls, statement, *args):
    return calls.connection.execute(statement.replace("@s", calls.schema), args or None)


@pytest.mark.parametrize(("marked_up", "sentences"), ANSWERS, ids=range(len(ANSWERS)))
def test_every_sentence_of_a_marked_up_answer_is_still_there(calls, marked_up, sentences):
    clean = calls.value("ckpt_strip", marked_up)
    for sentence in sentences:
        assert sentence in clean
    # And hardly anything else: notes of what was there, and white space.
    assert len(clean) <= sum(map(len, sentences)) + 60
    assert len(clean) <= 0.3 * len(marked_up) or "grep" in marked_up


def test_marked_up_answers_shrink_by_seventy_percent(calls):
    before = sum(len(marked_up) for marked_up, _ in ANSWERS)
    after = sum(len(calls.value("ckpt_strip", marked_up)) for marked_up, _ in ANSWERS)
    assert after <= 0.3 * before


@pytest.mark.parametrize(
    "text",
    [
        "Nothing to do here.  ",
        "x = [1] and a[2].b, the values are [1, 2, 3]:\n[4] one\n[5] two",
        "A [link](https://example.org/[1]) and ![image](https://example.org/a.png)",
        "`<think>` and ``【1】`` and\n```\n<cite>[1]</cite>\n```\n",
        "<think>never closed, so nothing is known to end it",
        "closed only</think>",
        "2 < 3 and 4 > 3, <b>bold</b>, <div class='card'>text</div>",
        "data:image/png;base64,QUJD",
        "[0] and [1000] and [a] and x²",
        ":::note\nnot a card\n:::",
    ],
)
def test_plain_text_and_code_stay(calls, text):
    assert calls.value("ckpt_strip", text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("It rains[1].", "It rains."),
        ("It rains [1].", "It rains."),
        ("It rains.[1][2]", "It rains."),
        ("It rains [1] [2], and snows [3].", "It rains, and snows."),
        ("It rains[1, 2] and snows[3–5].", "It rains and snows."),
        ("**It rains**[1].", "**It rains**."),
        ("It rains<sup>[1]</sup>.", "It rains."),
        ("<THINK>\nhm\n</THINK>\nYes.", "Yes."),
        ("a <artifact id='1'>long</artifact> b", "a [artifact] b"),
        ("- one【1】\n- two【2†x】", "- one\n- two"),
    ],
)
def test_citations_and_blocks_go(calls, text, clean):
    assert calls.value("ckpt_strip", text) == clean


HOSTILE = {
    "open tags": "<think>" * 150_000,
    "closing tags": "</think>" * 150_000,
    "nested": "<cite>" * 100_000 + "</cite>" * 100_000,
    "angles": "<" * 1_000_000,
    "backticks": "".join("`" * (n % 50 + 1) + " " for n in range(40_000)),
    "fences": "```\n" * 250_000,
    "brackets": "[" * 1_000_000,
    "citations": "a[1] " * 200_000,
    "lenticular": "【" * 300_000,
    "cards": ":::card\n" * 120_000,
    "data": "data:image/png;base64," * 45_000,
    "images": "![](data:image/png;base64," + ("A" * 80 + " ![](data:image/png;base64,") * 9_000,
    "footnotes": "[^1]:" * 200_000,
    "blanks": " " * 1_000_000 + "[1]",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.needs_session
def test_a_hostile_message_does_not_stall_the_session(calls, text):
    """A megabyte of it. What is quadratic in that takes hours, so the limit tells nothing about a machine's speed."""
    calls.connection.execute("SET statement_timeout = '60s'")
    calls.value("ckpt_strip", text)


def test_rules_of_ones_own_go_in_order_and_can_be_switched_off(calls):
    owner(
        calls,
        "INSERT INTO @s.checkpoint_markup (name, kind, pattern, keep, replacement, ordinal) VALUES "
        "('tickets', 'pattern', 'TICKET-(\\d+)', 'replacement', 'ticket $1', 10), ('mood', 'tag', 'mood', 'nothing', NULL, 11)",
    )
    text = "TICKET-7 is done.<mood>happy</mood>"
    assert calls.value("ckpt_strip", text) == "ticket 7 is done."
    owner(calls, "UPDATE @s.checkpoint_markup SET enabled = false WHERE name = 'mood'")
    assert calls.value("ckpt_strip", text) == "ticket 7 is done.<mood>happy</mood>"
    owner(calls, "DELETE FROM @s.checkpoint_markup WHERE NOT shipped")
    assert calls.value("ckpt_strip", text) == text


def test_another_session_sees_a_rule_when_it_is_committed(sessions):
    one, two = sessions(2)
    with one.connection.transaction():
        one.connection.execute("INSERT INTO checkpoint_markup (name, kind, pattern) VALUES ('x', 'pattern', 'x')")
        assert (one.value("ckpt_strip", "axb"), two.value("ckpt_strip", "axb")) == ("ab", "axb")
    assert two.value("ckpt_strip", "axb") == "ab"
    one.connection.execute("DELETE FROM checkpoint_markup WHERE name = 'x'")
    assert two.value("ckpt_strip", "axb") == "axb"


@pytest.mark.parametrize(
    "values",
    [
        "'b', 'pattern', '(', 'nothing', NULL",
        "'b', 'pattern', '(?<=a)b', 'nothing', NULL",
        "'b', 'pattern', '(a)\\1', 'nothing', NULL",
        "'b', 'pattern', 'a*', 'nothing', NULL",
        "'b', 'pattern', '((a{99}){99}){99}', 'nothing', NULL",
        "'b', 'tag', 'a b', 'nothing', NULL",
        "'b', 'tag', '', 'nothing', NULL",
        "'b', 'xpath', '//a', 'nothing', NULL",
        "'b', 'tag', 'a', 'everything', NULL",
        "'b', 'tag', 'a', 'replacement', NULL",
        "'b', 'tag', 'a', 'text', 'but'",
        "'b', 'data', 'image/', 'text', NULL",
    ],
)
def test_a_bad_rule_is_refused_when_it_is_added(calls, values):
    with refused("22023") as refusal:
        owner(calls, f"INSERT INTO @s.checkpoint_markup (name, kind, pattern, keep, replacement) VALUES ({values})")
    assert refusal.hint
    with refused("22023"):
        owner(
            calls,
            "WITH new AS (INSERT INTO @s.checkpoint_markup (name, kind, pattern) VALUES ('g', 'tag', 'g') RETURNING 1) "
            f"INSERT INTO @s.checkpoint_markup (name, kind, pattern, keep, replacement) VALUES ({values})",
        )
    assert calls.sql("SELECT count(*) FROM @s.checkpoint_markup WHERE NOT shipped") == [(0,)]


def test_shipped_rules_can_be_switched_off_and_nothing_else(calls):
    owner(calls, "UPDATE @s.checkpoint_markup SET enabled = false WHERE name = 'think'")
    assert calls.value("ckpt_strip", "<think>a</think>b") == "<think>a</think>b"
    for statement in (
        "UPDATE @s.checkpoint_markup SET pattern = 'x' WHERE name = 'cite'",
        "UPDATE @s.checkpoint_markup SET shipped = false WHERE name = 'cite'",
        "UPDATE @s.checkpoint_markup SET ordinal = 1 WHERE name = 'cite'",
        "DELETE FROM @s.checkpoint_markup",
        "TRUNCATE @s.checkpoint_markup",
    ):
        with refused("22023"):
            owner(calls, statement)
    # As a restore does it.
    owner(
        calls,
        "INSERT INTO @s.checkpoint_markup (name, kind, pattern, keep, enabled, ordinal, shipped) "
        "VALUES ('think', 'tag', 'think', 'nothing', true, 100, true)",
    )
    assert calls.value("ckpt_strip", "<think>a</think>b") == "b"


def window(calls, thread, **options):
    return [row for row in calls.rows("ckpt_window", thread, **options) if row.kind in ("message", "final")]


def test_the_window_is_cleaned_and_the_log_is_not(calls, thread):
    marked_up = "<think>hm</think>It rains[1]."
    messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": marked_up, "id": "a"}, {"role": "user", "content": "So?"}]
    calls.rows("ckpt_append", thread, json.dumps(messages))
    _, clean, _ = window(calls, thread)
    assert (clean.content, json.loads(clean.message)) == ("It rains.", messages[1] | {"content": "It rains."})
    assert (clean.msg_id, clean.seq, clean.tokens) == ("a", 2, of_text("It rains."))
    _, raw, _ = window(calls, thread, strip=False)
    assert (raw.content, json.loads(raw.message), raw.tokens) == (marked_up, messages[1], of_text(marked_up))
    [_, stored, _] = calls.rows("ckpt_messages", thread)
    assert (stored.content, stored.tokens) == (marked_up, of_text(marked_up))


def test_what_a_person_or_a_tool_says_is_meant(calls, thread):
    picture = "data:image/png;base64," + "QUJD" * 256
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": f"Option [2], please. <think>aloud</think> {picture}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": '{"seats": [1], "note": "<cite>x</cite>"}'},
        {"role": "assistant", "content": [{"type": "text", "text": "Done [1]."}, {"type": "text", "text": "<think>x</think>"}]},
    ]
    calls.rows("ckpt_append", thread, json.dumps(messages))
    user, _, tool, model = window(calls, thread)
    assert user.content == "Option [2], please. <think>aloud</think> [image/png, 768 bytes]"
    assert json.loads(tool.message) == messages[2]
    # A text of which nothing is left is not empty: model providers refuse that.
    assert json.loads(model.message)["content"] == [{"type": "text", "text": "Done."}, {"type": "text", "text": "…"}]
