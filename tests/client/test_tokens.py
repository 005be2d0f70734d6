"""Token counts, against tiktoken."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations import CONVERSATIONS
from support import refused
from tokens_reference import ENCODINGS, of_message, of_text

TEXTS = [
    "",
    "hello world",
    "  \n\n  x\t\r\n",
    "antidisestablishmentarianism",
    "お誕生日おめでとう",
    "👩‍👩‍👧‍👦 naïve — “quotes” I'll DON'T",
    "<|endoftext|><|im_start|>",
    "1234567890 3.14159",
    "a" * 10_000,
    " " * 10_000,
    "日本" * 5_000,
    "fn main() { println!(\"{}\", x); }\n\t\t// end",
]


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:12])
def test_counts_are_those_of_tiktoken(calls, text, name):
    assert calls.value("ckpt_tokens", text, name) == of_text(text, name)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_any_text_counts_as_with_tiktoken(module_calls, text):
    for name in ENCODINGS:
        assert module_calls.value("ckpt_tokens", text, name) == of_text(text, name)


def test_an_unknown_encoding_is_refused_with_those_that_are_known(calls):
    with refused("22023") as refusal:
        calls.value("ckpt_tokens", "a", "p50k_base")
    assert "p50k_base" in refusal.message
    assert all(name in refusal.detail for name in ENCODINGS)


def test_every_message_of_the_recorded_conversations(calls):
    """The whole table: what the log keeps, message by message, is what tiktoken counts."""
    differences, counted = [], 0
    for at, conversation in enumerate(CONVERSATIONS):
        thread = f"recorded-{at}"
        # The turn tells equal messages apart, so that each has a row.
        for place, message in enumerate(conversation["messages"]):
            calls.rows("ckpt_append", thread, json.dumps([message]), str(place))
        rows = calls.rows("ckpt_messages", thread)
        assert len(rows) == len(conversation["messages"])
        for row, message in zip(rows, conversation["messages"], strict=True):
            counted += 1
            if row.tokens != of_message(message):
                differences.append((thread, row.seq, row.tokens, of_message(message)))
    assert differences == []
    assert counted >= 60


PICTURE = "data:image/png;base64," + "QUJD" * 5_000


@pytest.mark.parametrize(
    ("message", "texts"),
    [
        ({"content": "two words"}, ["two words"]),
        ({"content": None}, []),
        ({}, []),
        ({"content": [{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {"url": PICTURE}}]}, ["a b"]),
        ({"content": [{"type": "image", "source": {"type": "base64", "data": PICTURE}}]}, []),
        ({"content": [{"type": "input_audio", "input_audio": {"data": PICTURE}}]}, []),
        ({"tool_calls": [{"id": "1", "function": {"name": "find", "arguments": '{"a": 1}'}}]}, ["find", '{"a": 1}']),
        ({"content": [{"type": "tool_use", "id": "1", "name": "find", "input": {"a": 1}}]}, ["find", '{"a": 1}']),
        ({"content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "yes"}]}]}, ["yes"]),
    ],
)
def test_a_message_counts_what_the_model_reads_of_it(calls, thread, message, texts):
    calls.rows("ckpt_append", thread, json.dumps([{"role": "assistant"} | message]))
    [row] = calls.rows("ckpt_messages", thread)
    assert row.tokens == sum(map(of_text, texts))


def test_an_edit_is_counted_anew(calls, thread):
    calls.rows("ckpt_append", thread, '[{"id": "m", "role": "user", "content": "one"}]')
    calls.rows("ckpt_append", thread, '[{"id": "m", "role": "user", "content": "one two three"}]', on_conflict="replace")
    [row] = calls.rows("ckpt_messages", thread)
    assert row.tokens == of_text("one two three") == 3
