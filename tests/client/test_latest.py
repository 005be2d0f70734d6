"""Which checkpoint is the latest, what its parents are, how forks keep apart, and how lists and histories are ordered."""

import json

import pytest

from support import TABLES, refused

LARGE = {name: json.dumps(name * 3000) for name in "abc"}


def put(calls, thread, identifier, state="{}", **named):
    return calls.value("ckpt_put", thread, state, checkpoint_id=identifier, **named)


def latest(calls, thread, namespace=""):
    return calls.row("ckpt_latest", thread, namespace).checkpoint_id


def parents(calls, thread):
    return {row.checkpoint_id: row.parent_checkpoint_id for row in calls.rows("ckpt_list", thread)}


def test_without_a_parent_the_latest_is_it(calls, thread):
    for identifier in "cab":
        put(calls, thread, identifier)
        assert latest(calls, thread) == identifier
    assert parents(calls, thread) == {"c": None, "a": "c", "b": "a"}


def test_a_child_of_the_latest_becomes_it_though_its_id_sorts_before(calls, thread):
    put(calls, thread, "m")
    put(calls, thread, "a", parent_checkpoint_id="m")
    assert latest(calls, thread) == "a"


def test_a_late_put_of_an_older_id_on_an_older_parent_does_not_roll_back(calls, thread):
    for identifier in "123":
        put(calls, thread, identifier)
    put(calls, thread, "2b", parent_checkpoint_id="1")
    assert latest(calls, thread) == "3"
    put(calls, thread, "4", parent_checkpoint_id="1")
    assert latest(calls, thread) == "4"
    put(calls, thread, "3b", parent_checkpoint_id="3")
    assert latest(calls, thread) == "4"


def test_an_empty_parent_is_a_root(calls, thread):
    put(calls, thread, "1")
    put(calls, thread, "2", parent_checkpoint_id="")
    put(calls, thread, "0", parent_checkpoint_id="")
    assert parents(calls, thread) == {"2": None, "1": None, "0": None}
    assert latest(calls, thread) == "2"
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread)] == ["2"]


@pytest.mark.parametrize("place", ["nowhere", "another namespace", "another thread", "itself"])
def test_an_unknown_parent_is_refused(calls, thread, place):
    put(calls, thread, "1")
    put(calls, thread, "child", checkpoint_ns="ns")
    put(calls, f"{thread}/other", "theirs")
    parent = {"nowhere": "x", "another namespace": "child", "another thread": "theirs", "itself": "2"}[place]
    with refused("P0002") as refusal:
        put(calls, thread, "2", parent_checkpoint_id=parent)
    assert f'"{parent}"' in refusal.message
    assert refusal.detail and refusal.hint
    assert parents(calls, thread).keys() == {"1", "child"}


@pytest.mark.parametrize("identifier", ["", "i" * 256])
def test_an_id_that_is_empty_or_too_long_is_refused(calls, thread, identifier):
    with refused("22023"):
        put(calls, thread, identifier)


def test_namespaces_have_a_latest_of_their_own(calls, thread):
    put(calls, thread, "9")
    put(calls, thread, "1", checkpoint_ns="child")
    put(calls, thread, "2", checkpoint_ns="child")
    put(calls, thread, "5", checkpoint_ns="child|grandchild")
    assert [latest(calls, thread, namespace) for namespace in ("", "child", "child|grandchild")] == ["9", "2", "5"]
    assert parents(calls, thread) == {"9": None, "2": "1", "1": None, "5": None}


def test_the_fence(calls, thread):
    put(calls, thread, "1", expected_latest="")
    with refused("40001") as refusal:
        put(calls, thread, "2", expected_latest="")
    assert '"1"' in refusal.detail
    assert refusal.hint
    put(calls, thread, "2", expected_latest="1")
    with refused("40001"):
        put(calls, thread, "3", expected_latest="1")
    assert latest(calls, thread) == "2"
    put(calls, thread, "1", expected_latest="", checkpoint_ns="child")


def test_an_absent_channel_is_gone(calls, thread):
    put(calls, thread, "1", f'{{"a": 1, "b": {LARGE["b"]}}}')
    put(calls, thread, "2", '{"a": 1}')
    assert calls.value("ckpt_state", thread) == '{"a": 1}'
    assert calls.value("ckpt_channel", thread, "b") is None
    assert calls.value("ckpt_channel", thread, "b", "1") == LARGE["b"]


def test_unchanged_channels_add_no_stored_value(calls, thread):
    for step in range(20):
        put(calls, thread, f"{step:02}", f'{{"step": {step}, "a": {LARGE["a"]}, "b": {LARGE["b"]}}}')
    assert calls.count("checkpoint_blobs", thread) == 2
    put(calls, thread, "20", f'{{"a": {LARGE["c"]}, "b": {LARGE["b"]}}}')
    assert calls.count("checkpoint_blobs", thread) == 3
    assert calls.value("ckpt_channel", thread, "a", "19") == LARGE["a"]


def test_branches_read_their_own_values(calls, thread):
    put(calls, thread, "base", '{"m": []}', next=["t"])
    for branch in "abc":
        put(calls, thread, branch, f'{{"m": {LARGE[branch]}}}', parent_checkpoint_id="base")
    for branch in "abc":
        assert calls.value("ckpt_channel", thread, "m", branch) == LARGE[branch]
        assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread, branch)] == [branch, "base"]
    assert calls.value("ckpt_channel", thread, "m", "base") == "[]"


def test_forks_run_the_same_step_again_each_for_itself(calls, thread):
    put(calls, thread, "base", '{"m": ["base"]}', next=["t", "u"])
    calls.value("ckpt_put_writes", thread, "base", "t", '[["m", "abandoned"]]')
    results = {}
    for branch in ("one", "two"):
        fork = calls.value("ckpt_fork", thread, "base")
        resumed = calls.row("ckpt_resume", thread)
        assert (resumed.checkpoint_id, resumed.next, resumed.todo, resumed.finished) == (fork, ["t", "u"], ["t", "u"], "{}")
        for task in ("t", "u"):
            calls.value("ckpt_put_writes", thread, fork, task, json.dumps([["m", f"{branch} {task}"]]))
        made = calls.value("ckpt_apply_writes", thread, reducers='{"m": "append"}')
        results[made] = ["base", f"{branch} t", f"{branch} u"]
        assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread)] == [made, fork, "base"]
    for made, expected in results.items():
        assert json.loads(calls.value("ckpt_channel", thread, "m", made)) == expected
    # The base still has the writes that were logged against it, and can be folded.
    assert calls.rows("ckpt_history", thread, "base")[0].pending_writes == 1
    folded = calls.value("ckpt_apply_writes", thread, checkpoint_id="base", tasks=["t"], reducers='{"m": "append"}')
    assert json.loads(calls.value("ckpt_channel", thread, "m", folded)) == ["base", "abandoned"]


def test_a_fork_copies_state_and_next_shares_values_and_is_the_latest(calls, thread):
    put(calls, thread, "zz1", f'{{"a": {LARGE["a"]}, "n": 1.0}}', next=["x", "y"], metadata='{"source": "loop"}')
    put(calls, thread, "zz2", '{"n": 2}')
    blobs = calls.count("checkpoint_blobs", thread)
    fork = calls.value("ckpt_fork", thread, "zz1")
    row = calls.row("ckpt_latest", thread)
    assert (row.checkpoint_id, row.parent_checkpoint_id, row.next, row.pending_writes) == (fork, "zz1", ["x", "y"], 0)
    assert json.loads(row.metadata) == {"source": "fork"}
    assert calls.value("ckpt_state", thread) == calls.value("ckpt_state", thread, "zz1")
    assert calls.count("checkpoint_blobs", thread) == blobs
    # The next put goes on from it, though other ids sort after.
    made = calls.value("ckpt_put", thread, "{}")
    assert (latest(calls, thread), parents(calls, thread)[made]) == (made, fork)


def test_a_fork_of_an_unknown_checkpoint_is_refused(calls, thread):
    with refused("P0002"):
        calls.value("ckpt_fork", thread, "1")
    put(calls, thread, "1", checkpoint_ns="child")
    with refused("P0002"):
        calls.value("ckpt_fork", thread, "1")
    assert calls.value("ckpt_fork", thread, "1", "child") == latest(calls, thread, "child")


def test_history_is_the_chain_of_parents_newest_first(calls, thread):
    for identifier in ("5", "3", "4"):
        put(calls, thread, identifier)
    put(calls, thread, "9", parent_checkpoint_id="3")
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread)] == ["9", "3", "5"]
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread, "4")] == ["4", "3", "5"]
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread, "4", max_rows=2)] == ["4", "3"]
    assert calls.rows("ckpt_history", thread, max_rows=0) == []
    assert calls.rows("ckpt_history", thread, "unknown") == []


def test_a_long_history_is_complete(calls, thread):
    calls.sql("SELECT ckpt_put(%s, json_build_object('n', n), checkpoint_id => to_char(n, 'FM0000')) FROM generate_series(1, 1500) n", thread)
    rows = calls.rows("ckpt_history", thread)
    assert [row.checkpoint_id for row in rows] == [f"{n:04}" for n in range(1500, 0, -1)]
    assert [json.loads(row.channels) for row in rows] == [{"n": n} for n in range(1500, 0, -1)]


@pytest.fixture
def listed(calls, thread):
    """Ids in two threads and two namespaces; in the list of all they are found by their own prefix."""
    for name in ("a", "b"):
        for namespace in ("", "ns"):
            for number in (1, 2, 3):
                metadata = json.dumps({"run": thread, "n": number, "name": name})
                put(calls, f"{thread}/{name}", f"{number}", metadata=metadata, checkpoint_ns=namespace)
    return json.dumps({"run": thread})


def keys(thread, rows):
    return [(row.checkpoint_id, row.thread_id.removeprefix(f"{thread}/"), row.checkpoint_ns) for row in rows]


def test_list_is_ordered_by_id_descending_then_thread_then_namespace(calls, thread, listed):
    expected = [(f"{number}", name, namespace) for number in (3, 2, 1) for name in "ab" for namespace in ("", "ns")]
    assert keys(thread, calls.rows("ckpt_list", filter=listed)) == expected
    for most in (0, 1, 5, 100):
        assert keys(thread, calls.rows("ckpt_list", filter=listed, max_rows=most)) == expected[:most]


def test_list_by_thread_and_namespace(calls, thread, listed):
    ids = {(name, namespace): [(f"{n}", name, namespace) for n in (3, 2, 1)] for name in "ab" for namespace in ("", "ns")}
    for (name, namespace), expected in ids.items():
        assert keys(thread, calls.rows("ckpt_list", f"{thread}/{name}", namespace)) == expected
    assert keys(thread, calls.rows("ckpt_list", f"{thread}/a")) == [
        (f"{n}", "a", namespace) for n in (3, 2, 1) for namespace in ("", "ns")
    ]
    assert keys(thread, calls.rows("ckpt_list", None, "ns", filter=listed)) == [(f"{n}", name, "ns") for n in (3, 2, 1) for name in "ab"]
    assert calls.rows("ckpt_list", f"{thread}/a", "n") == []


@pytest.mark.parametrize("before, numbers", [("3", [2, 1]), ("25", [2, 1]), ("2", [1]), ("1", []), ("0", []), ("z", [3, 2, 1]), ("", [])])
def test_before_is_a_strict_bound_that_need_not_exist(calls, thread, listed, before, numbers):
    rows = calls.rows("ckpt_list", f"{thread}/a", "", before=before)
    assert keys(thread, rows) == [(f"{n}", "a", "") for n in numbers]
    rows = calls.rows("ckpt_list", filter=listed, before=before)
    assert [row.checkpoint_id for row in rows] == [f"{n}" for n in numbers for _ in range(4)]


def test_filter_is_containment(calls, thread, listed):
    for wanted, expected in (({"n": 2}, [2]), ({"n": 2, "name": "b"}, [2]), ({"n": [2]}, []), ({"unknown": 1}, []), ({"n": "2"}, [])):
        rows = calls.rows("ckpt_list", f"{thread}/b", "ns", json.dumps(wanted))
        assert [row.checkpoint_id for row in rows] == [f"{n}" for n in expected]


@pytest.mark.parametrize("wanted", ["[]", "1", '"a"', "null"])
def test_a_filter_that_is_no_object_is_refused(calls, wanted):
    with refused("22023"):
        calls.rows("ckpt_list", filter=wanted)


def test_list_and_history_tell_the_same_as_latest(calls, thread):
    put(calls, thread, "1", f'{{"a": {LARGE["a"]}, "n": 1.0}}', next=["x"], metadata='{"k":1}')
    calls.value("ckpt_put_writes", thread, "1", "x", '[["n", 1], ["n", 2]]')
    [row] = calls.rows("ckpt_latest", thread)
    assert row.pending_writes == 2
    for function in ("ckpt_list", "ckpt_history"):
        [other] = calls.rows(function, thread)
        assert other == (thread, "", *row)


def test_delete_thread_leaves_no_row_in_any_table(calls, thread):
    for name in (thread, f"{thread}/kept"):
        for namespace in ("", "child"):
            put(calls, name, "1", f'{{"a": {LARGE["a"]}}}', next=["t"], checkpoint_ns=namespace)
            calls.value("ckpt_put_writes", name, "1", "t", f'[["a", {LARGE["b"]}]]', namespace)
            calls.value("ckpt_apply_writes", name, namespace)
            calls.value("ckpt_put_writes", name, "not there yet", "t", "[]", namespace)
        calls.rows("ckpt_append", name, '[{"role": "user", "content": "1"}, {"role": "user", "content": "2"}]')
    kept = {table: calls.count(table, f"{thread}/kept") for table in TABLES}
    assert calls.value("ckpt_delete_thread", thread) == 4 + 2
    assert {table: calls.count(table, thread) for table in TABLES} == dict.fromkeys(TABLES, 0)
    assert {table: calls.count(table, f"{thread}/kept") for table in TABLES} == kept
    assert calls.value("ckpt_delete_thread", thread) == 0
    assert calls.rows("ckpt_latest", thread) == []


def test_a_deleted_thread_begins_anew(calls, thread):
    put(calls, thread, "1", '{"a": 1}')
    calls.rows("ckpt_append", thread, '[{"role": "user", "content": "1"}]')
    calls.value("ckpt_delete_thread", thread)
    made = calls.value("ckpt_put", thread, "{}", expected_latest="")
    [row] = calls.rows("ckpt_history", thread)
    assert (row.checkpoint_id, row.parent_checkpoint_id) == (made, None)
    with refused("P0002"):
        put(calls, thread, "2", parent_checkpoint_id="1")
