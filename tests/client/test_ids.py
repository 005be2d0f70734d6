"""Checkpoint ids: UUIDv6 that sort after every UUIDv6 of their thread and namespace; a given id is kept and put once."""

import json
import time
import uuid

import pytest

from support import refused

FUTURE = "3fffffff-ffff-6abc-8000-000000000001"
GREGORIAN_TO_UNIX_TICKS = 0x01B21DD213814000


def uuid6(ticks, tail="8123456789ab"):
    """A UUIDv6 by its time: 48 high bits, version, 12 low bits, variant."""
    return str(uuid.UUID(int=(ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 0x8123 << 48 | int(tail, 16)))


def ticks_of(identifier):
    number = uuid.UUID(identifier).int
    return (number >> 80) << 12 | (number >> 64) & 0xFFF


def put(calls, thread, **named):
    return calls.value("ckpt_put", thread, "{}", **named)


def makers(calls, thread):
    """Every function that makes an id."""
    base = put(calls, thread, next=["t"])
    yield base
    calls.value("ckpt_put_writes", thread, base, "t", "[]")
    yield calls.value("ckpt_apply_writes", thread)
    yield calls.value("ckpt_fork", thread, base)
    yield put(calls, thread)


def test_an_id_is_a_uuid6_of_now(calls, thread):
    before = time.time_ns() // 100 + GREGORIAN_TO_UNIX_TICKS
    for identifier in makers(calls, thread):
        parsed = uuid.UUID(identifier)
        assert (str(parsed), parsed.version, parsed.variant) == (identifier, 6, uuid.RFC_4122)
        # A minute's room: the server may run on another clock, and ids made in a row are pushed ahead of it.
        assert abs(ticks_of(identifier) - before) < 60 * 10**7


def test_ids_rise_in_the_order_in_which_they_are_made(calls, thread):
    ids = [row[0] for row in calls.sql("SELECT ckpt_put(%s, '{}') FROM generate_series(1, 2000)", thread)]
    assert ids == sorted(set(ids))


def test_ids_of_two_threads_differ(calls, thread):
    assert len({put(calls, f"{thread}/{number}") for number in range(50)}) == 50


@pytest.mark.parametrize("parent", ["latest", "root"])
def test_ids_sort_after_one_from_the_future(calls, thread, parent):
    newest = FUTURE
    put(calls, thread, checkpoint_id=newest)
    if parent == "root":
        put(calls, thread, checkpoint_id="a root of its own", parent_checkpoint_id="")
    for identifier in makers(calls, thread):
        assert uuid.UUID(identifier).version == 6
        assert identifier > newest
        newest = identifier


def test_ids_sort_after_a_future_one_in_upper_case(calls, thread):
    put(calls, thread, checkpoint_id=FUTURE.upper())
    made = put(calls, thread)
    assert made > FUTURE.upper()
    assert ticks_of(made) > ticks_of(FUTURE)


def test_ids_sort_after_an_old_one_that_came_late(calls, thread):
    put(calls, thread, checkpoint_id=FUTURE)
    put(calls, thread, checkpoint_id=uuid6(ticks_of(FUTURE) - 10**7))
    assert put(calls, thread) > FUTURE


def test_ids_sort_after_one_that_another_session_put(sessions, thread):
    one, two = sessions(2)
    put(one, thread)
    put(two, thread, checkpoint_id=FUTURE)
    assert put(one, thread) > FUTURE


def test_a_future_id_concerns_its_own_namespace_and_thread_only(calls, thread):
    put(calls, thread, checkpoint_id=FUTURE, checkpoint_ns="child")
    put(calls, f"{thread}/other", checkpoint_id=FUTURE)
    assert put(calls, thread) < FUTURE
    assert put(calls, thread, checkpoint_ns="child") > FUTURE


def test_ids_that_are_no_uuid6_do_not_count(calls, thread):
    for other in ("zzz", str(uuid.UUID(int=2**128 - 1)), "ffffffff-ffff-4fff-bfff-ffffffffffff", FUTURE.replace("-", "")):
        put(calls, thread, checkpoint_id=other)
    made = put(calls, thread)
    assert uuid.UUID(made).version == 6
    assert made < FUTURE


def test_where_no_id_is_left_the_put_is_refused_and_a_given_one_still_taken(calls, thread):
    last = "ffffffff-ffff-6fff-bfff-ffffffffffff"
    put(calls, thread, checkpoint_id=last)
    with refused("54000") as refusal:
        put(calls, thread)
    assert refusal.hint
    assert put(calls, thread, checkpoint_id="zz") == "zz"
    assert calls.row("ckpt_latest", thread).checkpoint_id == "zz"


LARGE = {name: json.dumps(name * 3000) for name in "ab"}


def test_the_same_put_again_changes_nothing(calls, thread):
    arguments = {"metadata": '{"a": 1.0}', "next": ["x", "y"], "checkpoint_id": "chosen"}
    state = f'{{"small": 1, "large": {LARGE["a"]}}}'
    calls.value("ckpt_put", thread, state, **arguments)
    put(calls, thread, checkpoint_id="later")
    before = calls.rows("ckpt_list", thread), calls.sql("SELECT ctid::text, xmin::text FROM @s.checkpoints WHERE thread_id = %s", thread)
    # Also where the fence would fail now, and whatever parent is named: it is decided before.
    for more in ({}, {"expected_latest": ""}, {"expected_latest": "nowhere"}, {"parent_checkpoint_id": "unknown"}):
        assert calls.value("ckpt_put", thread, state, **arguments, **more) == "chosen"
    after = calls.rows("ckpt_list", thread), calls.sql("SELECT ctid::text, xmin::text FROM @s.checkpoints WHERE thread_id = %s", thread)
    assert after == before
    assert calls.row("ckpt_latest", thread).checkpoint_id == "later"


@pytest.mark.parametrize("changed", ["state", "metadata", "next"])
def test_other_content_under_a_taken_id_replaces_content_but_not_parent_order_or_time(calls, thread, changed):
    first = {"state": f'{{"c": {LARGE["a"]}}}', "metadata": '{"v": 1}', "next": ["x"]}
    second = first | {"state": {"state": f'{{"c": {LARGE["b"]}}}'}, "metadata": {"metadata": '{"v": 2}'}, "next": {"next": ["y"]}}[changed]
    put(calls, thread, checkpoint_id="1")
    calls.value("ckpt_put", thread, checkpoint_id="2", **first)
    put(calls, thread, checkpoint_id="3")
    before = calls.rows("ckpt_history", thread)
    order = [row.checkpoint_id for row in calls.rows("ckpt_list", thread)]
    assert calls.value("ckpt_put", thread, checkpoint_id="2", parent_checkpoint_id="3", **second) == "2"
    after = calls.rows("ckpt_history", thread)
    assert [row.checkpoint_id for row in calls.rows("ckpt_list", thread)] == order == ["3", "2", "1"]
    for old, new in zip(before, after, strict=True):
        assert (new.checkpoint_id, new.parent_checkpoint_id, new.created_at) == (old.checkpoint_id, old.parent_checkpoint_id, old.created_at)
    assert (after[1].metadata, after[1].next) == (second["metadata"], second["next"])
    assert calls.value("ckpt_state", thread, "2") == second["state"]
    assert [row.checkpoint_id for row in calls.rows("ckpt_list", thread, filter='{"v": 2}')] == (["2"] if changed == "metadata" else [])
    assert calls.row("ckpt_latest", thread).checkpoint_id == "3"


def test_other_content_behind_a_fence_that_fails_is_refused(calls, thread):
    put(calls, thread, checkpoint_id="1")
    put(calls, thread, checkpoint_id="2")
    with refused("40001"):
        calls.value("ckpt_put", thread, '{"other": 1}', checkpoint_id="1", expected_latest="1")
    assert calls.value("ckpt_state", thread, "1") == "{}"
    calls.value("ckpt_put", thread, '{"other": 1}', checkpoint_id="1", expected_latest="2")
    assert calls.value("ckpt_state", thread, "1") == '{"other": 1}'


def test_replacing_leaves_no_orphan_and_takes_no_value_that_another_checkpoint_has(calls, thread):
    calls.value("ckpt_put", thread, f'{{"c": {LARGE["a"]}}}', checkpoint_id="1")
    calls.value("ckpt_put", thread, f'{{"c": {LARGE["a"]}, "d": {LARGE["b"]}}}', checkpoint_id="2")
    assert calls.count("checkpoint_blobs", thread) == 2
    put(calls, thread, checkpoint_id="2")
    assert calls.count("checkpoint_blobs", thread) == 1
    assert calls.value("ckpt_channel", thread, "c", "1") == LARGE["a"]
    put(calls, thread, checkpoint_id="1")
    assert calls.count("checkpoint_blobs", thread) == 0


@pytest.mark.needs_session
def test_the_same_put_is_the_same_whatever_the_inline_limit_was(calls, thread):
    state = json.dumps({"large": "x" * 3000})
    calls.value("ckpt_put", thread, state, checkpoint_id="id", expected_latest="")
    for limit in ("8192", "0"):
        calls.sql("SELECT set_config('checkpointer.inline_limit', %s, false)", limit)
        calls.value("ckpt_put", thread, state, checkpoint_id="id", expected_latest="")
    calls.sql("SELECT set_config('checkpointer.inline_limit', '1kB', false)")
    with refused("40001"):
        calls.value("ckpt_put", thread, json.dumps({"large": "y" * 3000}), checkpoint_id="id", expected_latest="")
