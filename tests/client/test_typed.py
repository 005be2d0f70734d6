"""The typed form: bytes, tags and versions as given, channels carried over, branches apart."""

import json
import os
import random

import pytest

from support import refused

ODD_NAMES = ["channel", "with space", "ünï", "a'); DROP TABLE x;--", "__pregel_tasks", "branch:to:a", "\u202e", "{}", "x" * 255]


def put(calls, thread, id, values, versions=None, body='{"v": 4}', **named):
    """`values`: channel → (type, bytes or None); `versions` defaults to 1 for each."""
    versions = versions if versions is not None else dict.fromkeys(values, 1)
    arrays = [list(values), [tag for tag, _ in values.values()], [value for _, value in values.values()]]
    return calls.sql(
        "SELECT @s.ckpt_put_typed(%s, %s, %s, %s, %s, %s, %s::pg_catalog.bytea[]"
        + "".join(f", {name} => %s" for name in named)
        + ")",
        thread, id, body, json.dumps(versions), *arrays, *named.values(),
    )[0][0]  # fmt: skip


def put_writes(calls, thread, id, task, writes, **named):
    arrays = [[write[at] for write in writes] for at in range(3)]
    return calls.sql(
        "SELECT @s.ckpt_put_writes_typed(%s, %s, %s, %s, %s, %s::pg_catalog.bytea[]"
        + "".join(f", {name} => %s" for name in named)
        + ")",
        thread, id, task, *arrays, *named.values(),
    )[0][0]  # fmt: skip


def channels(calls, thread, id=None, ns=""):
    rows = calls.rows("ckpt_get_typed", thread, ns, id)
    return {row.channel: (json.loads(row.version), row.value_type, row.value) for row in rows if row.kind == "channel"}


def writes(calls, thread, id=None, ns=""):
    rows = calls.rows("ckpt_get_typed", thread, ns, id)
    return [(row.task_id, row.idx, row.channel, row.value_type, row.value) for row in rows if row.kind == "write"]


def noise(seed, length):
    return random.Random(seed).randbytes(length)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1024, 1025, 5000, 300_000])
def test_bytes_come_back_as_given(calls, thread, size):
    given = {"a": ("msgpack", noise(size, size)), "b": ("json", b"[" * size), "zeros": ("", bytes(size))}
    put(calls, thread, "c", given)
    assert channels(calls, thread) == {name: (1, tag, value) for name, (tag, value) in given.items()}


def test_any_text_names_a_channel_or_a_task(calls, thread):
    given = {name: ("t", name.encode()) for name in ODD_NAMES}
    put(calls, thread, "c", given, {name: f"v-{name}"[:255] for name in ODD_NAMES})
    assert list(channels(calls, thread)) == ODD_NAMES
    for name in ODD_NAMES:
        put_writes(calls, thread, "c", name, [(name, "t", b"w")])
    assert sorted(task for task, *_ in writes(calls, thread)) == sorted(ODD_NAMES)


@pytest.mark.parametrize("version", [0, 7, -3, 2**70, "", "00000000000000000000000000000003.0.243798848838515"])
def test_versions_are_kept_as_given(calls, thread, version):
    put(calls, thread, "c", {"a": ("t", b"x")}, {"a": version})
    [[text]] = calls.sql("SELECT version::text FROM @s.ckpt_get_typed(%s) WHERE kind = 'channel'", thread)
    assert text == json.dumps(version)


@pytest.mark.parametrize("version", ["1.5", "true", "null", "[1]", "{}"])
def test_other_versions_are_refused(calls, thread, version):
    with refused("22023"):
        calls.value("ckpt_put_typed", thread, "c", "{}", f'{{"a": {version}}}')


def test_the_framework_s_own_fields_come_back(calls, thread):
    body = '{"v": 4, "ts": "2026-01-01", "versions_seen": {"__input__": {}}, "x": 1e400}'
    calls.value("ckpt_put_typed", thread, "c", body, "{}", metadata='{"step": -1,  "source": "input"}')
    [row] = calls.rows("ckpt_get_typed", thread)
    [[text, metadata]] = calls.sql("SELECT checkpoint::text, metadata::text FROM @s.ckpt_get_typed(%s)", thread)
    assert (row.kind, row.checkpoint_id, row.parent_checkpoint_id) == ("checkpoint", "c", None)
    assert (text, metadata) == (body, '{"step": -1,  "source": "input"}')


def test_a_channel_that_is_not_sent_is_carried_over(calls, thread):
    put(calls, thread, "a", {"kept": ("t", b"k" * 3000), "small": ("t", b"s"), "gone": ("t", b"g"), "none": ("empty", None)})
    put(calls, thread, "b", {"new": ("t", b"n")}, {"kept": 1, "small": 1, "none": 1, "new": 1})
    assert channels(calls, thread, "b") == {
        "kept": (1, "t", b"k" * 3000),
        "small": (1, "t", b"s"),
        "none": (1, "empty", None),
        "new": (1, "t", b"n"),
    }
    assert calls.count("checkpoint_blobs", thread) == 1


def test_where_the_parent_has_another_version_the_newest_of_that_version_is_taken(calls, thread):
    put(calls, thread, "a", {"x": ("t", b"old")}, {"x": 1})
    put(calls, thread, "b", {"x": ("t", b"mid")}, {"x": 2})
    put(calls, thread, "c", {"x": ("t", b"new")}, {"x": 3})
    put(calls, thread, "d", {}, {"x": 2})
    put(calls, thread, "e", {}, {"x": 1, "y": 1}, parent_checkpoint_id="not stored")
    assert channels(calls, thread, "d") == {"x": (2, "t", b"mid")}
    assert channels(calls, thread, "e") == {"x": (1, "t", b"old"), "y": (1, "", None)}
    [row] = calls.rows("ckpt_history", thread, "e")
    assert row.parent_checkpoint_id == "not stored"


def test_siblings_with_equal_versions_have_their_own_values(calls, thread):
    put(calls, thread, "base", {"m": ("t", b"b" * 2000)}, {"m": 1})
    put(calls, thread, "left", {"m": ("t", b"l" * 2000)}, {"m": 2}, parent_checkpoint_id="base")
    put(calls, thread, "right", {"m": ("t", b"r" * 2000)}, {"m": 2}, parent_checkpoint_id="base")
    assert channels(calls, thread, "left")["m"][2] == b"l" * 2000
    assert channels(calls, thread, "right")["m"][2] == b"r" * 2000
    put(calls, thread, "left/2", {}, {"m": 2}, parent_checkpoint_id="left")
    assert channels(calls, thread, "left/2")["m"][2] == b"l" * 2000


def test_a_task_that_runs_again_for_another_branch_has_writes_of_its_own(calls, thread):
    put(calls, thread, "base", {})
    put_writes(calls, thread, "base", "task", [("m", "t", b"first"), ("n", "t", b"first too")])
    put(calls, thread, "left", {}, parent_checkpoint_id="base")
    # The same again is a no-op; other content is the next branch's and no conflict.
    assert put_writes(calls, thread, "base", "task", [("m", "t", b"first"), ("n", "t", b"first too")]) == 0
    assert put_writes(calls, thread, "base", "task", [("m", "t", b"second")]) == 1
    assert writes(calls, thread, "base") == [("task", 0, "m", "t", b"second")]
    with refused("23505"):
        put_writes(calls, thread, "base", "task", [("m", "t", b"third")])
    put(calls, thread, "right", {}, parent_checkpoint_id="base")
    put_writes(calls, thread, "base", "task", [("m", "t", b"third")])
    assert writes(calls, thread, "base") == [("task", 0, "m", "t", b"third")]


def test_special_channels_and_late_writes(calls, thread):
    put(calls, thread, "a", {})
    put_writes(calls, thread, "a", "task", [("m", "t", b"x"), ("__interrupt__", "t", b"?")])
    put_writes(calls, thread, "a", "task", [("__interrupt__", "t", b"??")])
    put_writes(calls, thread, "a", "task", [("__error__", "t", b"late")])
    assert writes(calls, thread, "a") == [
        ("task", -3, "__interrupt__", "t", b"??"),
        ("task", -1, "__error__", "t", b"late"),
        ("task", 0, "m", "t", b"x"),
    ]
    put(calls, thread, "b", {})
    assert put_writes(calls, thread, "a", "late", [("m", "t", b"y")]) == 1


@pytest.mark.parametrize("size", [10, 5000])
def test_on_conflict(calls, thread, size):
    put(calls, thread, "a", {})
    old, new = [("m", "t", b"o" * size), ("n", "t", b"o")], [("m", "t", b"n" * size)]
    put_writes(calls, thread, "a", "task", old)
    with refused("23505"):
        put_writes(calls, thread, "a", "task", new)
    assert put_writes(calls, thread, "a", "task", new, on_conflict="keep") == 0
    assert [row[4] for row in writes(calls, thread, "a")] == [b"o" * size, b"o"]
    put_writes(calls, thread, "a", "task", new, on_conflict="replace")
    assert [row[4] for row in writes(calls, thread, "a")] == [b"n" * size]
    assert calls.count("checkpoint_blobs", thread) == (1 if size > 1024 else 0)


def test_what_arrives_as_a_write_and_then_in_the_state_is_stored_once(calls, thread):
    documents = noise(1, 20_000)
    put(calls, thread, "a", {})
    put_writes(calls, thread, "a", "task", [("documents", "msgpack", documents)])
    put(calls, thread, "b", {"documents": ("msgpack", documents)})
    [[stored]] = calls.sql("SELECT sum(len) FROM @s.checkpoint_segments WHERE thread_id = %s", thread)
    assert stored <= len(documents)
    assert channels(calls, thread)["documents"][2] == writes(calls, thread, "a")[0][4] == documents


def test_the_same_id_again(calls, thread):
    put(calls, thread, "a", {"m": ("t", b"1" * 2000)})
    put(calls, thread, "b", {"m": ("t", b"2" * 2000)}, {"m": 2})
    put(calls, thread, "a", {"m": ("t", b"1" * 2000)}, expected_latest="nonsense")
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread)] == ["b", "a"]
    with refused("40001"):
        put(calls, thread, "a", {"m": ("t", b"3" * 2000)}, expected_latest="nonsense")
    put(calls, thread, "a", {"m": ("t", b"3" * 2000)})
    assert channels(calls, thread, "a")["m"][2] == b"3" * 2000
    assert calls.row("ckpt_latest", thread).checkpoint_id == "b"
    assert calls.count("checkpoint_blobs", thread) == 2


def test_the_fence(calls, thread):
    put(calls, thread, "a", {}, expected_latest="")
    with refused("40001"):
        put(calls, thread, "b", {}, expected_latest="")
    put(calls, thread, "b", {}, expected_latest="a")
    assert calls.row("ckpt_latest", thread).checkpoint_id == "b"


def test_latest_follows_the_tip(calls, thread):
    for id, parent in [("5", None), ("1", "5"), ("0", "5"), ("9", "5")]:
        put(calls, thread, id, {}, **({"parent_checkpoint_id": parent} if parent else {}))
        expected = {"5": "5", "1": "1", "0": "1", "9": "9"}[id]
        assert calls.row("ckpt_latest", thread).checkpoint_id == expected


def test_list_gives_the_rows_of_get(calls, thread):
    for id in "abc":
        put(calls, f"{thread}/x", id, {"m": ("t", id.encode() * 2000)}, metadata=json.dumps({"n": id, "of": thread}))
        put_writes(calls, f"{thread}/x", id, "task", [("m", "t", id.encode())])
    rows = calls.rows("ckpt_list_typed", filter=json.dumps({"of": thread}))
    assert rows == [row for id in "cba" for row in calls.rows("ckpt_get_typed", f"{thread}/x", "", id)]
    rows = calls.rows("ckpt_list_typed", f"{thread}/x", before="c", max_rows=1)
    assert [(row.kind, row.checkpoint_id) for row in rows] == [("checkpoint", "b"), ("channel", "b"), ("write", "b")]
    assert calls.rows("ckpt_get_typed", f"{thread}/nothing") == []
    assert calls.rows("ckpt_get_typed", f"{thread}/x", "", "nothing") == []


def test_a_framework_s_checkpoint_is_not_folded_and_a_fork_keeps_its_values(calls, thread):
    put(calls, thread, "a", {"m": ("msgpack", b"\x91" * 2000)}, {"m": "1.0"})
    put_writes(calls, thread, "a", "task", [("m", "msgpack", b"\x90")])
    with refused("55000"):
        calls.value("ckpt_apply_writes", thread)
    calls.value("ckpt_fork", thread, "a")
    assert channels(calls, thread) == {"m": ("1.0", "msgpack", b"\x91" * 2000)}


@pytest.mark.parametrize(
    "channels, types, values",
    [(["a", "b"], ["t"], [b"1", b"2"]), (["a", "a"], ["t", "t"], [b"1", b"2"]), (["c"], ["t"], [b"1"]), ([""], ["t"], [b"1"])],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(calls, thread, channels, types, values):
    with refused("22023") as refusal:
        calls.value("ckpt_put_typed", thread, "id", "{}", '{"a": 1, "b": 1}', channels, types, values)
    assert refusal.hint
    assert calls.rows("ckpt_get_typed", thread) == []


def test_nulls_are_refused(calls, thread):
    for arrays in (([None], ["t"], [b"1"]), (["a"], [None], [b"1"]), (None, ["t"], [b"1"])):
        with refused("22004"):
            calls.value("ckpt_put_typed", thread, "id", "{}", '{"a": 1}', *arrays)
    with refused("22004"):
        calls.sql("SELECT @s.ckpt_put_writes_typed(%s, 'a', 't', '{m}', '{t}', '{NULL}')", thread)


def test_encrypted_values_cost_what_they_are(calls, thread):
    total = 0
    for turn in range(20):
        value = os.urandom(20_000 + 300 * turn)
        total += len(value)
        put(calls, thread, f"{turn:03}", {"m": ("msgpack+aes", value)}, {"m": turn})
        assert channels(calls, thread)["m"][2] == value
    [[stored]] = calls.sql("SELECT sum(len) FROM @s.checkpoint_segments WHERE thread_id = %s", thread)
    assert stored <= total
