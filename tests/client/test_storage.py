"""Large values as logs and recipes: any version reads back, only what is new is stored, damage is seen."""

import itertools
import json
import pickle
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import refused
from test_typed import channels, noise, put, put_writes

TURNS = 60
# Hypothesis runs an example again to be sure of it: each run has a thread of its own.
RUNS = itertools.count()


def message(number):
    return b"\x82\xa2id\xd9\x20" + f"{number:032}".encode() + b"\xa7content\xda\x02\x58" + noise(number, 300).hex().encode()


def msgpack_list(messages):
    count = len(messages)
    header = bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return header + b"".join(messages)


def pickled(messages):
    return pickle.dumps(messages)


def bracketed(messages):
    return b"[" + b", ".join(b'"%s"' % element[-600:] for element in messages) + b"]"


def stored_bytes(calls, thread):
    [[stored]] = calls.sql("SELECT COALESCE(sum(len), 0) FROM @s.checkpoint_segments WHERE thread_id = %s", thread)
    return int(stored)


@pytest.mark.parametrize("encode, share", [(msgpack_list, 1.0), (bracketed, 1.0), (pickled, 3.0)])
def test_a_growing_list_costs_what_is_new(calls, thread, encode, share):
    versions = []
    for turn in range(1, TURNS + 1):
        versions.append(encode([message(number) for number in range(2 * turn)]))
        put(calls, thread, f"{turn:03}", {"m": ("t", versions[-1])}, {"m": turn})
    assert stored_bytes(calls, thread) <= share * len(versions[-1])
    for turn, value in enumerate(versions, 1):
        assert channels(calls, thread, f"{turn:03}")["m"][2] == value


def test_an_earlier_content_costs_nothing(calls, thread):
    first, second = noise(1, 9000), noise(2, 9000)
    for turn, value in enumerate([first, second, first, second, first]):
        put(calls, thread, str(turn), {"m": ("t", value)}, {"m": turn})
    assert stored_bytes(calls, thread) <= len(first) + len(second)


def test_branches_share_what_they_have_in_common(calls, thread):
    common = [message(number) for number in range(40)]
    put(calls, thread, "base", {"m": ("t", msgpack_list(common))}, {"m": 1})
    tips = {}
    for branch in range(4):
        messages, parent = list(common), "base"
        for turn in range(10):
            messages.append(message(1000 * (branch + 1) + turn))
            id = f"{branch}/{turn}"
            put(calls, thread, id, {"m": ("t", msgpack_list(messages))}, {"m": 2 + turn}, parent_checkpoint_id=parent)
            parent = id
        tips[parent] = msgpack_list(messages)
    new = sum(len(value) for value in tips.values()) - 4 * len(msgpack_list(common))
    assert stored_bytes(calls, thread) <= len(msgpack_list(common)) + new + 1000
    for id, value in tips.items():
        assert channels(calls, thread, id)["m"][2] == value


def test_many_branches_of_a_long_thread_cost_what_is_new(calls, thread):
    """What a branch shares with its base and what it adds come to stand far apart in the log."""
    common = [message(number) for number in range(100)]
    put(calls, thread, "base", {"m": ("t", msgpack_list(common))}, {"m": 1})
    added = 0
    for branch in range(80):
        messages, parent = list(common), "base"
        for turn in range(6):
            messages.append(message(1000 * (branch + 1) + turn))
            added += len(messages[-1])
            id = f"{branch}/{turn}"
            put(calls, thread, id, {"m": ("t", msgpack_list(messages))}, {"m": 2 + turn}, parent_checkpoint_id=parent)
            parent = id
    assert stored_bytes(calls, thread) <= len(msgpack_list(common)) + added
    assert channels(calls, thread, parent)["m"][2] == msgpack_list(messages)


def test_a_fold_appends_to_a_list_without_rewriting_it(calls, thread):
    words = [f'"{number} {noise(number, 200).hex()}"' for number in range(150)]
    calls.value("ckpt_put", thread, f'{{"list": [{", ".join(words[:50])}], "other": 1}}', checkpoint_id="0")
    base = "0"
    for number in range(50, 150, 2):
        calls.value("ckpt_put_writes", thread, base, "t", f'[["list", [{words[number]}, {words[number + 1]}]], ["other", {number}]]')
        base = calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}')
    [[text]] = calls.sql("SELECT @s.ckpt_state(%s)::text", thread)
    assert text == f'{{"list": [{", ".join(words)}], "other": 148}}'
    [[stored]] = calls.sql(
        "SELECT sum(len) FROM @s.checkpoint_segments WHERE thread_id = %s AND log = 'list'", thread
    )
    assert stored <= len(text)
    # A client that sends the whole list goes on from there, and the same list is the same value.
    calls.value("ckpt_put", thread, text)
    [[again]] = calls.sql(
        "SELECT sum(len) FROM @s.checkpoint_segments WHERE thread_id = %s AND log = 'list'", thread
    )
    assert again == stored


def test_damage_is_named(calls, thread):
    put(calls, thread, "id", {"m": ("t", noise(1, 5000))})
    for statement in (
        "UPDATE @s.checkpoint_segments SET data = overlay(data PLACING '\\x00' FROM 100) WHERE thread_id = %s",
        "DELETE FROM @s.checkpoint_segments WHERE thread_id = %s",
        "DELETE FROM @s.checkpoint_blobs WHERE thread_id = %s",
    ):
        calls.sql(statement + " RETURNING 1", thread)
        with refused("XX001") as refusal:
            calls.rows("ckpt_get_typed", thread)
        assert refusal.message == f'channel "m" of checkpoint "id" of thread "{thread}" is damaged'


def test_text_is_packed_and_what_nothing_makes_smaller_is_not(calls, thread):
    text = b" ".join(b"%d of the agents remember what the others forgot;" % number for number in range(2000))
    put(calls, thread, "text", {"m": ("t", text)})
    put(calls, thread, "noise", {"m": ("t", noise(7, len(text)))}, {"m": 2})
    sizes = calls.sql(
        "SELECT octet_length(data) AS stored, len FROM @s.checkpoint_segments WHERE thread_id = %s ORDER BY start", thread
    )
    [(packed, text_len), (stored, noise_len)] = sizes
    assert packed < text_len / 3
    assert stored == noise_len
    assert channels(calls, thread, "text")["m"][2] == text
    for damage in ("substr(data, 1, octet_length(data) - 1)", "overlay(data PLACING '\\x000000' FROM 200)", "data || '\\x00'"):
        with calls.connection.transaction(force_rollback=True):
            calls.sql(f"UPDATE @s.checkpoint_segments SET data = {damage} WHERE thread_id = %s AND start = 0 RETURNING 1", thread)
            with refused("XX001") as refusal:
                calls.rows("ckpt_get_typed", thread, checkpoint_id="text")
        assert refusal.message == f'channel "m" of checkpoint "text" of thread "{thread}" is damaged'


def test_a_value_over_many_segments(calls, thread):
    value = noise(3, 3_000_000)
    put(calls, thread, "a", {"m": ("t", value)})
    longer = value[:1_000_000] + b"an edit" + value[1_000_100:] + noise(4, 700_000)
    put(calls, thread, "b", {"m": ("t", longer)}, {"m": 2})
    assert channels(calls, thread, "a")["m"][2] == value
    assert channels(calls, thread, "b")["m"][2] == longer
    assert stored_bytes(calls, thread) < len(longer) + 5000


@pytest.mark.parametrize("tasks", [1, 3])
def test_messages_that_arrive_as_writes_are_in_the_state_already(calls, thread, tasks):
    messages = [message(number) for number in range(10)]
    put(calls, thread, "000", {"m": ("msgpack", msgpack_list(messages))}, {"m": 0})
    for turn in range(1, 30):
        for task in range(tasks):
            new = [message(1000 * turn + 10 * task + at) for at in range(2)]
            put_writes(calls, thread, f"{turn - 1:03}", f"task-{task}", [("m", "msgpack", msgpack_list(new))])
            messages.extend(new)
        put(calls, thread, f"{turn:03}", {"m": ("msgpack", msgpack_list(messages))}, {"m": turn})
        assert channels(calls, thread)["m"][2] == msgpack_list(messages)
    assert stored_bytes(calls, thread) <= len(msgpack_list(messages))
    for row in calls.rows("ckpt_list_typed", thread):
        if row.kind == "write":
            turn, task = int(row.checkpoint_id) + 1, int(row.task_id[-1])
            assert row.value == msgpack_list([message(1000 * turn + 10 * task + at) for at in range(2)])


@pytest.mark.parametrize("whole", [True, False])
def test_json_messages_that_arrive_as_writes_are_in_the_state_already(calls, thread, whole):
    words = [{"n": number, "text": noise(number, 400).hex()} for number in range(64)]
    calls.value("ckpt_put", thread, json.dumps({"list": words[:4]}), checkpoint_id="0")
    base = "0"
    for at in range(4, 64, 2):
        calls.value("ckpt_put_writes", thread, base, "t", json.dumps([["list", words[at : at + 2]]]))
        if whole:
            base = calls.value("ckpt_put", thread, json.dumps({"list": words[: at + 2]}))
        else:
            base = calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}')
    text = json.dumps(words)
    assert calls.value("ckpt_channel", thread, "list") == text
    assert stored_bytes(calls, thread) <= len(text)


STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 9), st.sampled_from(["append", "cut", "edit", "new", "again"]), st.integers(1, 6000)),
    st.tuples(st.just("writes"), st.integers(0, 9), st.integers(0, 3), st.integers(1, 6000)),
    st.tuples(st.just("fork"), st.integers(0, 9)),
    st.tuples(st.just("replace"), st.integers(0, 9), st.integers(1, 6000)),
    st.tuples(st.just("prune"), st.integers(1, 4)),
)


def changed(value, how, size, seed):
    draw = random.Random(seed)
    at = draw.randrange(len(value) + 1)
    match how:
        case "append":
            return value + noise(seed, size)
        case "cut":
            return value[: at // 2] + value[at // 2 + size :]
        case "edit":
            return value[:at] + noise(seed, size % 500 + 1) + value[at:]
        case "new":
            return noise(seed, size)
        case _:
            return value


class Model:
    """What the thread must hold: the value of each checkpoint, and its tasks' batches of writes. A batch belongs to the child
    that is put next; another batch of its task after that is a new one."""

    def __init__(self):
        self.values, self.children, self.batches = {}, {}, {}

    def pick(self, at):
        return list(self.values)[at % len(self.values)]

    def put(self, id, parent, value, born):
        self.values[id] = value
        self.children[id] = (parent, born)

    def write(self, base, task, value, begun):
        batches = self.batches.setdefault((base, task), [])
        if batches and not any(parent == base and born > batches[-1][0] for parent, born in self.children.values()):
            begun = batches.pop()[0]
        batches.append((begun, value))

    def keep(self, left):
        for id in self.values.keys() - left:
            parent, born = self.children.get(id, (None, None))
            elder = max((at for of, at in self.children.values() if of == parent and at < (born or 0)), default=0)
            for key in [key for key in self.batches if key[0] == parent]:
                self.batches[key] = [batch for batch in self.batches[key] if not elder < batch[0] <= born]
        self.batches = {key: batches for key, batches in self.batches.items() if key[0] in left and batches}
        # A child whose parent is gone consumed nothing of the ancestor that it gets.
        self.children = {id: child for id, child in self.children.items() if id in left and child[0] in left}
        self.values = {id: value for id, value in self.values.items() if id in left}

    def shown(self):
        return {key: batches[-1][1] for key, batches in self.batches.items()}

    def stored(self):
        return {*self.values.values(), *(value for batches in self.batches.values() for _, value in batches)}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=3, max_size=25), seed=st.integers(0, 2**32))
def test_any_versions_forks_and_prunes_read_back(calls, thread, steps, seed):
    thread = f"{thread}/{next(RUNS)}"
    model = Model()
    model.values["000"] = noise(seed, 4000)
    put(calls, thread, "000", {"m": ("t", model.values["000"])}, {"m": 0})
    for number, (action, *rest) in enumerate(steps, 1):
        id = f"{number:03}"
        if action == "put":
            parent = model.pick(rest[0])
            model.put(id, parent, changed(model.values[parent], rest[1], rest[2], seed + number), number)
            put(calls, thread, id, {"m": ("t", model.values[id])}, {"m": number}, parent_checkpoint_id=parent)
        elif action == "writes":
            base, task, value = model.pick(rest[0]), f"task-{rest[1]}", noise(seed + number, rest[2])
            model.write(base, task, value, number)
            put_writes(calls, thread, base, task, [("m", "t", value)], on_conflict="replace")
        elif action == "fork":
            source = model.pick(rest[0])
            model.put(calls.value("ckpt_fork", thread, source), source, model.values[source], number)
        elif action == "replace":
            id = model.pick(rest[0])
            model.values[id] = noise(seed + number, rest[1])
            put(calls, thread, id, {"m": ("t", model.values[id])}, {"m": number})
        else:
            calls.value("ckpt_prune", [thread], rest[0])
            left = {row.checkpoint_id for row in calls.rows("ckpt_list", thread)}
            assert len(left) == min(rest[0], len(model.values))
            model.keep(left)
        rows = calls.rows("ckpt_list_typed", thread)
        assert {row.checkpoint_id: row.value for row in rows if row.kind == "channel"} == model.values
        assert {(row.checkpoint_id, row.task_id): row.value for row in rows if row.kind == "write"} == model.shown()
    needed = {value for value in model.stored() if len(value) > 1024}
    if "prune" in [action for action, *_ in steps[-1:]]:
        assert calls.count("checkpoint_blobs", thread) == len(needed)
    calls.value("ckpt_delete_thread", thread)
    assert stored_bytes(calls, thread) == 0
    assert calls.count("checkpoint_blobs", thread) == 0
