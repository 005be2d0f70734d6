"""Any text that Postgres holds is a valid name, means itself, and no other name."""

import json

import pytest

from support import split_json
from values import NAMES

every_name = pytest.mark.parametrize("name", NAMES, ids=ascii)


def test_names_as_channels_of_one_state(calls, thread):
    state = "{" + ",".join(f"{json.dumps(name)}:{at}" for at, name in enumerate(NAMES)) + "}"
    calls.value("ckpt_put", thread, state)
    assert split_json(calls.value("ckpt_state", thread)) == [(name, str(at)) for at, name in enumerate(NAMES)]
    for at, name in enumerate(NAMES):
        assert calls.value("ckpt_channel", thread, name) == str(at)
        assert split_json(calls.value("ckpt_state", thread, channels=[name])) == [(name, str(at))]


def test_names_as_tasks_and_written_channels_of_one_step(calls, thread):
    base = calls.value("ckpt_put", thread, "{}", next=NAMES)
    assert calls.row("ckpt_resume", thread).todo == NAMES
    for at, name in enumerate(NAMES):
        writes = json.dumps([[name, at]], ensure_ascii=at % 2 == 0)
        assert calls.value("ckpt_put_writes", thread, base, name, writes, task_path=name) == 1
    resumed = calls.row("ckpt_resume", thread)
    assert (resumed.next, resumed.todo) == (NAMES, [])
    assert json.loads(resumed.finished) == {name: [[name, at]] for at, name in enumerate(NAMES)}
    calls.value("ckpt_apply_writes", thread, next=NAMES)
    # Folded in the order of (task_path, task_id), compared by bytes.
    folded = sorted(enumerate(NAMES), key=lambda pair: pair[1].encode())
    assert split_json(calls.value("ckpt_state", thread)) == [(name, str(at)) for at, name in folded]
    assert calls.row("ckpt_latest", thread).next == NAMES


def test_names_with_reducers(calls, thread):
    base = calls.value("ckpt_put", thread, json.dumps({name: [1] for name in NAMES}), next=["t"])
    calls.value("ckpt_put_writes", thread, base, "t", json.dumps([[name, 2] for name in NAMES]))
    calls.value("ckpt_apply_writes", thread, reducers=json.dumps({name: "append" for name in NAMES}))
    assert json.loads(calls.value("ckpt_state", thread)) == {name: [1, 2] for name in NAMES}


def test_names_as_threads_are_apart(calls):
    for at, name in enumerate(NAMES):
        calls.value("ckpt_put", name, json.dumps({"at": at}))
        calls.rows("ckpt_append", name, json.dumps([{"role": "user", "content": str(at)}]))
    for at, name in enumerate(NAMES):
        assert calls.value("ckpt_state", name) == json.dumps({"at": at})
        assert [(row.seq, row.content) for row in calls.rows("ckpt_messages", name)] == [(1, str(at))]
        assert [row.thread_id for row in calls.rows("ckpt_list", name)] == [name]
        assert [row.thread_id for row in calls.rows("ckpt_history", name)] == [name]
    assert calls.value("ckpt_delete_thread", "%") == 2
    assert {row.thread_id for row in calls.rows("ckpt_list")} >= set(NAMES) - {"%"}


def test_names_as_namespaces_are_apart(calls, thread):
    calls.value("ckpt_put", thread, '{"at": "root"}')
    for at, name in enumerate(NAMES):
        calls.value("ckpt_put", thread, json.dumps({"at": at}), checkpoint_ns=name)
    assert calls.value("ckpt_channel", thread, "at") == '"root"'
    for at, name in enumerate(NAMES):
        assert calls.value("ckpt_channel", thread, "at", checkpoint_ns=name) == str(at)
        assert [row.checkpoint_ns for row in calls.rows("ckpt_list", thread, name)] == [name]
        [row] = calls.rows("ckpt_history", thread, checkpoint_ns=name)
        assert (row.checkpoint_ns, row.parent_checkpoint_id) == (name, None)
    assert len(calls.rows("ckpt_list", thread)) == len(NAMES) + 1


def test_names_as_checkpoint_ids_are_apart_and_sort_by_bytes(calls, thread):
    for at, name in enumerate(NAMES):
        assert calls.value("ckpt_put", thread, json.dumps({"at": at}), checkpoint_id=name) == name
    for at, name in enumerate(NAMES):
        assert calls.value("ckpt_channel", thread, "at", name) == str(at)
    in_bytes = sorted(NAMES, key=str.encode, reverse=True)
    assert [row.checkpoint_id for row in calls.rows("ckpt_list", thread)] == in_bytes
    for at, name in enumerate(in_bytes):
        assert [row.checkpoint_id for row in calls.rows("ckpt_list", thread, before=name)] == in_bytes[at + 1 :]
    # Each was put when the one before it was the latest, so the chain is in the order of the puts.
    assert [row.checkpoint_id for row in calls.rows("ckpt_history", thread)] == NAMES[::-1]


@every_name
def test_a_name_as_role_turn_and_message_id(calls, thread, name):
    message = json.dumps({"id": name, "role": name, "content": name})
    assert calls.rows("ckpt_append", thread, f"[{message}]", name) == [(1, name, True)]
    row = calls.row("ckpt_messages", thread)
    assert (row.msg_id, row.role, row.content, row.turn, row.message) == (name, name, name, name, message)


@pytest.mark.needs_session
def test_names_as_tenants_are_apart(calls, thread):
    tenants = [name for name in NAMES if len(name.encode()) <= 63]
    for tenant in ["", *tenants]:
        calls.sql("SELECT pg_catalog.set_config('checkpointer.tenant', %s, false)", tenant)
        calls.value("ckpt_put", thread, json.dumps({"tenant": tenant}))
    for tenant in ["", *tenants]:
        calls.sql("SELECT pg_catalog.set_config('checkpointer.tenant', %s, false)", tenant)
        assert json.loads(calls.value("ckpt_state", thread)) == {"tenant": tenant}
        assert len(calls.rows("ckpt_list", thread)) == 1


def test_names_that_texts_hold_and_limits_allow_only_just(calls):
    thread, namespace, path = "é" * 256, "é" * 512, "é" * 2048
    base = calls.value("ckpt_put", thread, "{}", next=["t"], checkpoint_ns=namespace)
    calls.value("ckpt_put_writes", thread, base, "t", "[]", namespace, path)
    assert calls.value("ckpt_apply_writes", thread, namespace) == calls.row("ckpt_latest", thread, namespace).checkpoint_id
