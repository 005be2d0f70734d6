"""ckpt_prune: what goes, what stays because something kept needs it, and that nothing else is touched."""

import json
import threading

import pytest

from support import refused
from test_storage import message, msgpack_list, stored_bytes
from test_typed import channels, noise, put, put_writes


def chain(calls, thread, count, **named):
    for number in range(count):
        calls.value("ckpt_put", thread, f'{{"n": {number}}}', checkpoint_id=f"{number:03}", **named)


def ids(calls, thread, ns=None):
    return sorted(row.checkpoint_id for row in calls.rows("ckpt_list", thread, ns))


def test_the_newest_of_each_namespace_stay(calls, thread):
    chain(calls, thread, 5)
    chain(calls, thread, 4, checkpoint_ns="sub")
    chain(calls, f"{thread}/other", 3)
    assert calls.value("ckpt_prune", [thread, thread], 2) == 5
    assert ids(calls, thread, "") == ["003", "004"]
    assert ids(calls, thread, "sub") == ["002", "003"]
    assert len(ids(calls, f"{thread}/other")) == 3
    assert [row.parent_checkpoint_id for row in calls.rows("ckpt_history", thread)] == ["003", None]
    assert calls.value("ckpt_prune", [thread], 2) == 0


def test_the_latest_stays_though_it_is_not_the_newest(calls, thread):
    chain(calls, thread, 3)
    # Late, of an older branch, and sorting before the latest: accepted, and not the latest.
    calls.value("ckpt_put", thread, '{"n": 9}', checkpoint_id="0005", parent_checkpoint_id="000")
    assert calls.value("ckpt_prune", [thread]) == 3
    assert ids(calls, thread) == ["002"]


def test_children_get_the_nearest_kept_ancestor(calls, thread):
    chain(calls, thread, 4)
    calls.value("ckpt_put", thread, '{"n": 9}', checkpoint_id="branch", parent_checkpoint_id="001")
    # Newest first: branch (the latest), 003, 002, 001, 000.
    assert calls.value("ckpt_prune", [thread], 3) == 2
    parents = {row.checkpoint_id: row.parent_checkpoint_id for row in calls.rows("ckpt_list", thread)}
    assert parents == {"branch": None, "003": "002", "002": None}


def test_age(calls, thread):
    chain(calls, thread, 4)
    calls.sql("UPDATE @s.checkpoints SET created_at = now() - interval '10 days' WHERE thread_id = %s AND checkpoint_id < '002' RETURNING 1", thread)
    assert calls.sql("SELECT @s.ckpt_prune(ARRAY[%s], 1, '11 days')", thread)[0][0] == 0
    assert calls.sql("SELECT @s.ckpt_prune(ARRAY[%s], 1, '9 days')", thread)[0][0] == 2
    assert ids(calls, thread) == ["002", "003"]


def test_bytes_are_freed_and_kept_values_read(calls, thread):
    values = {}
    for turn in range(40):
        values[f"{turn:03}"] = msgpack_list([message(number) for number in range(turn, turn + 20)])
        put(calls, thread, f"{turn:03}", {"m": ("t", values[f"{turn:03}"]), "d": ("t", noise(turn, 4000))}, {"m": turn, "d": turn})
    before = stored_bytes(calls, thread)
    assert calls.value("ckpt_prune", [thread], 3) == 37
    for id in ("037", "038", "039"):
        assert channels(calls, thread, id)["m"][2] == values[id]
    assert stored_bytes(calls, thread) < before / 3
    assert calls.count("checkpoint_blobs", thread) == 6
    # And the thread goes on.
    put(calls, thread, "040", {"m": ("t", values["039"] + b"more")}, {"m": 40})
    assert channels(calls, thread)["m"][2] == values["039"] + b"more"


def test_a_large_old_segment_is_cut_down_to_what_is_needed(calls, thread):
    value = noise(1, 200_000)
    put(calls, thread, "a", {"m": ("t", value)}, {"m": 1})
    put(calls, thread, "b", {"m": ("t", b"head" + value[100_000:120_000] + value[150_000:152_000])}, {"m": 2})
    calls.value("ckpt_prune", [thread])
    assert channels(calls, thread)["m"][2] == b"head" + value[100_000:120_000] + value[150_000:152_000]
    assert stored_bytes(calls, thread) < 23_000


def test_pending_writes_go_with_their_checkpoint_and_stay_with_it(calls, thread):
    chain(calls, thread, 2)
    for id in ("000", "001"):
        calls.value("ckpt_put_writes", thread, id, "t", f'[["m", "{id}{"x" * 2000}"]]')
    calls.value("ckpt_prune", [thread])
    assert calls.count("checkpoint_writes", thread) == 1
    assert calls.count("checkpoint_blobs", thread) == 1
    assert json.loads(calls.row("ckpt_resume", thread).finished) == {"t": [["m", "001" + "x" * 2000]]}


def test_an_open_interrupt_stays(calls, thread):
    chain(calls, thread, 3)
    calls.value("ckpt_put", thread, "{}", checkpoint_id="asks", parent_checkpoint_id="000")
    calls.value("ckpt_put_writes", thread, "asks", "t", '[["__interrupt__", "really?"]]')
    calls.value("ckpt_put_writes", thread, "001", "t", '[["__interrupt__", "answered: it has a child"]]')
    calls.value("ckpt_fork", thread, "002")
    calls.value("ckpt_prune", [thread])
    assert "asks" in ids(calls, thread) and len(ids(calls, thread)) == 2


def test_what_a_delta_channel_is_replayed_from_stays(calls, thread):
    put(calls, thread, "0", {"m": ("t", b"older")}, {"m": 0})
    put(calls, thread, "1", {"m": ("t", b"snapshot")}, {"m": 1})
    for id in "1234":
        if id != "1":
            put(calls, thread, id, {"m": ("empty", None)}, {"m": int(id)})
        put_writes(calls, thread, id, f"task-{id}", [("m", "t", id.encode())])
    assert calls.value("ckpt_prune", [thread]) == 1
    assert ids(calls, thread) == ["1", "2", "3", "4"]
    put(calls, thread, "5", {"m": ("t", b"next snapshot")}, {"m": 5})
    assert calls.value("ckpt_prune", [thread]) == 4


@pytest.mark.parametrize("arguments", ["ARRAY['t'], 0", "ARRAY['t'], -1", "ARRAY['t'], 1, '-1 day'", "ARRAY['']"])
def test_nonsense_is_refused(calls, arguments):
    with refused("22023") as refusal:
        calls.sql(f"SELECT @s.ckpt_prune({arguments})")
    assert refusal.hint


def test_nulls_are_refused(calls):
    for arguments in ("NULL", "ARRAY[NULL]", "ARRAY['t'], NULL"):
        with refused("22004"):
            calls.sql(f"SELECT @s.ckpt_prune({arguments})")


def test_beside_a_running_writer(sessions, thread):
    writer, pruner = sessions(2)
    done = threading.Event()

    def write():
        messages = []
        for turn in range(150):
            messages.append(message(turn))
            put(writer, thread, f"{turn:03}", {"m": ("t", msgpack_list(messages[-30:]))}, {"m": turn})
            assert channels(writer, thread, f"{turn:03}")["m"][2] == msgpack_list(messages[-30:])
        done.set()

    worker = threading.Thread(target=write)
    worker.start()
    while not done.is_set() and worker.is_alive():
        pruner.value("ckpt_prune", [thread], 2)
    worker.join()
    assert done.is_set()
    pruner.value("ckpt_prune", [thread], 2)
    assert ids(pruner, thread) == ["148", "149"]
    assert channels(pruner, thread)["m"][2] == msgpack_list([message(number) for number in range(120, 150)])


def test_a_leaf_whose_task_no_longer_waits_goes(calls, thread):
    for leaf in ("answered", "failed", "open"):
        calls.value("ckpt_put", thread, "{}", checkpoint_id=leaf, parent_checkpoint_id="")
        calls.value("ckpt_put_writes", thread, leaf, "t", '[["__interrupt__", "sure?"]]')
    calls.value("ckpt_put_writes", thread, "answered", "t", '[["__resume__", "yes"], ["n", 1]]')
    calls.value("ckpt_put_writes", thread, "failed", "t", '[["__error__", "no"]]')
    calls.value("ckpt_put", thread, "{}", checkpoint_id="z", parent_checkpoint_id="")
    assert calls.value("ckpt_prune", [thread]) == 2
    assert ids(calls, thread) == ["open", "z"]
