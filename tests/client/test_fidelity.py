"""What was put comes out as it was put, byte for byte, whichever way it goes and wherever it is stored."""

import json

import pytest

from support import split_json
from values import DEEP, VALUES

every_value = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
BATCH = '[["a", %s], ["b", %s]]'
LARGEST_INLINE = 8192


@pytest.fixture(params=[0, LARGEST_INLINE], ids=["out of line", "inline"])
def inline_limit(request, calls):
    calls.sql("SELECT pg_catalog.set_config('checkpointer.inline_limit', %s, false)", str(request.param))
    return request.param


@every_value
@pytest.mark.needs_session
def test_a_channel_comes_back_as_put(calls, thread, inline_limit, value):
    calls.value("ckpt_put", thread, f'{{"first": 1, "channel":{value}, "last" : "z"}}')
    assert calls.value("ckpt_channel", thread, "channel") == value
    state = calls.value("ckpt_state", thread)
    assert split_json(state) == [("first", "1"), ("channel", value), ("last", '"z"')]
    assert split_json(calls.value("ckpt_state", thread, channels=["channel"])) == [("channel", value)]


@every_value
@pytest.mark.needs_session
def test_latest_shows_a_small_value_and_of_a_large_one_type_and_size(calls, thread, inline_limit, value):
    calls.value("ckpt_put", thread, f'{{"channel":{value}}}')
    size = len(value.encode())
    for function in ("ckpt_latest", "ckpt_history", "ckpt_list"):
        [(name, shown)] = split_json(calls.row(function, thread).channels)
        assert name == "channel"
        if size <= inline_limit:
            assert shown == value
        else:
            assert json.loads(shown) == {"$type": "json", "$bytes": size}


@every_value
@pytest.mark.needs_session
def test_out_of_line_or_not_is_what_the_setting_says(calls, thread, inline_limit, value):
    calls.value("ckpt_put", thread, f'{{"channel":{value}}}')
    assert calls.count("checkpoint_blobs", thread) == (1 if len(value.encode()) > inline_limit else 0)


@every_value
@pytest.mark.needs_session
def test_writes_come_back_as_logged_and_fold_as_logged(calls, thread, inline_limit, value):
    base = calls.value("ckpt_put", thread, '{"a": 0}', next=["task"])
    assert calls.value("ckpt_put_writes", thread, base, "task", BATCH % (value, value)) == 2
    [(task, finished)] = split_json(calls.row("ckpt_resume", thread).finished)
    assert task == "task"
    assert [split_json(write) for write in split_json(finished)] == [['"a"', value], ['"b"', value]]
    folded = calls.value("ckpt_apply_writes", thread)
    assert folded != base
    assert split_json(calls.value("ckpt_state", thread)) == [("a", value), ("b", value)]
    assert split_json(calls.value("ckpt_state", thread, base)) == [("a", "0")]


@every_value
@pytest.mark.needs_session
def test_an_appended_element_comes_back_as_logged(calls, thread, inline_limit, value):
    base = calls.value("ckpt_put", thread, f'{{"list": [{value}]}}', next=["task"])
    calls.value("ckpt_put_writes", thread, base, "task", f'[["list", [{value}, 1.0]]]')
    calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}')
    assert split_json(calls.value("ckpt_channel", thread, "list")) == [value, value, "1.0"]


@every_value
def test_errors_and_interrupts_come_back_as_logged(calls, thread, value):
    base = calls.value("ckpt_put", thread, "{}", next=["failing", "asking"])
    calls.value("ckpt_put_writes", thread, base, "failing", f'[["__error__", {value}]]')
    calls.value("ckpt_put_writes", thread, base, "asking", f'[["__interrupt__", {value}]]')
    row = calls.row("ckpt_resume", thread)
    assert split_json(row.failed) == [("failing", value)]
    [(task, waiting)] = split_json(row.waiting)
    assert task == "asking"
    assert [split_json(write) for write in split_json(waiting)] == [['"__interrupt__"', value]]


@every_value
def test_metadata_comes_back_as_put(calls, thread, value):
    metadata = f'{{ "source":"loop" ,"k":{value},  "step" : -0.0}}'
    calls.value("ckpt_put", thread, "{}", metadata)
    for function in ("ckpt_latest", "ckpt_history", "ckpt_list"):
        assert calls.row(function, thread).metadata == metadata


@every_value
def test_folded_metadata_comes_back_as_given(calls, thread, value):
    metadata = f'{{"k":{value}}}'
    base = calls.value("ckpt_put", thread, "{}", next=["task"])
    calls.value("ckpt_put_writes", thread, base, "task", "[]")
    calls.value("ckpt_apply_writes", thread, metadata=metadata)
    assert calls.row("ckpt_latest", thread).metadata == metadata


@every_value
def test_a_message_comes_back_as_appended(calls, thread, value):
    message = f'{{"role":"user",  "content" : "q" ,"extra":{value}}}'
    calls.rows("ckpt_append", thread, f"[{message}]")
    row = calls.row("ckpt_messages", thread)
    assert (row.message, row.content, row.role) == (message, "q", "user")
    [final] = calls.rows("ckpt_window", thread)
    assert (final.kind, final.message, final.content) == ("final", message, "q")


@every_value
def test_current_and_preamble_come_back_as_given(calls, thread, value):
    message = f'{{"role":"user",  "content" : "q" ,"extra":{value}}}'
    rows = calls.rows("ckpt_window", thread, current=message, preamble=f"[{message},{message}]")
    assert [(row.kind, row.message) for row in rows] == [("preamble", message), ("preamble", message), ("final", message)]


def test_the_text_of_a_message_is_what_its_json_says(calls, thread):
    texts = {
        '"\\ud83d\\ude42 \\u00e9"': "\U0001f642 \u00e9",
        '"\\\\u0000"': "\\u0000",
        '"a\\/b\\n\\"c\\""': 'a/b\n"c"',
        '""': "",
    }
    for written in texts:
        calls.rows("ckpt_append", thread, f'[{{"role": "user", "content": {written}}}]')
    assert [row.content for row in calls.rows("ckpt_messages", thread)] == list(texts.values())


def test_a_message_whose_text_no_postgres_text_can_hold_is_whole_in_its_json(calls, thread):
    message = '{"role": "user", "content": "a\\u0000b"}'
    calls.rows("ckpt_append", thread, f"[{message}]")
    assert calls.row("ckpt_messages", thread).message == message
    assert calls.row("ckpt_window", thread).message == message


def test_a_missing_channel_is_sql_null_and_a_stored_null_is_json_null(calls, thread):
    calls.value("ckpt_put", thread, '{"null": null, "false": false}')
    assert calls.value("ckpt_channel", thread, "absent") is None
    assert calls.value("ckpt_channel", thread, "null") == "null"
    assert calls.value("ckpt_channel", thread, "false") == "false"
    assert calls.value("ckpt_state", thread, channels=["absent"]) == "{}"


@pytest.mark.needs_session
def test_a_whole_state_comes_back_after_a_change_of_the_limit(calls, thread):
    state = "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in VALUES.items()) + "}"
    for limit in (0, 20, LARGEST_INLINE):
        calls.sql("SELECT pg_catalog.set_config('checkpointer.inline_limit', %s, false)", str(limit))
        calls.value("ckpt_put", thread, state)
        assert split_json(calls.value("ckpt_state", thread)) == list(VALUES.items())


def metadata_found(calls, thread, metadata, wanted):
    """Whether a filter finds a checkpoint with this metadata, which must be returned whole."""
    identifier = calls.value("ckpt_put", thread, "{}", metadata)
    found = calls.rows("ckpt_list", thread, filter=wanted)
    assert all(row.metadata == metadata for row in found)
    return [row.checkpoint_id for row in found] == [identifier]


@pytest.mark.parametrize("value", ['"\\u0000"', '{"x": ["a\\u0000"]}', '{"a\\u0000": 1}', "1e999999", DEEP])
def test_a_member_that_jsonb_cannot_hold_hides_no_other(calls, thread, value):
    metadata = f'{{"user_id": 7, "bad": {value}, "tags": ["a", {{"deep": [null]}}]}}'
    assert metadata_found(calls, thread, metadata, '{"user_id": 7.0, "tags": ["a", {"deep": [null]}]}')


@pytest.mark.parametrize(
    "value",
    ['"\\\\u0000"', '"\\ud83d\\ude42"', "1180591620717411303424", "1e20000", "7" * 3000, "[" * 600 + "]" * 600, "null", '""'],
    ids=["backslash u0000", "surrogate pair", "2**70", "1e20000", "3000 digits", "600 deep", "null", "empty"],
)
def test_every_member_that_jsonb_can_hold_can_be_filtered_on(calls, thread, value):
    assert metadata_found(calls, thread, f'{{"k": {value}, "bad": "\\u0000"}}', f'{{"k": {value}}}')


def test_an_empty_filter_is_no_filter(calls, thread):
    ids = [calls.value("ckpt_put", thread, "{}", metadata) for metadata in ("{}", '{"a": 1}', '{"a": "\\u0000"}')]
    assert [row.checkpoint_id for row in calls.rows("ckpt_list", thread, filter="{}")] == ids[::-1]
    assert calls.rows("ckpt_list", thread, filter='{"b": 1}') == []
