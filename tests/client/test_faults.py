"""What users of such systems report of state, replay, writers, order and branches: each small input with the right value.

The name in brackets is the report's, in the tracker of the project that it is about: LG langgraph, JS langgraphjs, ADK adk-python,
OAI openai-agents-python, MAS mastra, SPR spring-ai, LC langchain, AEG aegra, OW open-webui, RED langgraph-redis."""

import json

import pytest

from support import at_once, connect, refused
from test_typed import channels, put, put_writes, writes

INT_VERSIONS = {"m": 2}


def bytes_of(calls, thread, id):
    return {name: value for name, (_, _, value) in channels(calls, thread, id).items()}


# Values of channels (C).


def test_two_branches_with_the_same_next_version_read_their_own_values(calls, thread):
    """[JS#1812]"""
    put(calls, thread, "root", {"m": ("b", b"root")}, {"m": 1})
    put(calls, thread, "left", {"m": ("b", b"left")}, INT_VERSIONS, parent_checkpoint_id="root")
    put(calls, thread, "right", {"m": ("b", b"right")}, INT_VERSIONS, parent_checkpoint_id="root")
    assert [bytes_of(calls, thread, id)["m"] for id in ("root", "left", "right")] == [b"root", b"left", b"right"]
    # And what comes after carries over that of its own branch.
    for id in ("left", "right"):
        put(calls, thread, f"{id} on", {"x": ("b", b"x")}, {"m": 2, "x": 1}, parent_checkpoint_id=id)
        assert bytes_of(calls, thread, f"{id} on")["m"] == id.encode()


def test_channels_that_the_last_node_did_not_write_are_carried_over(calls, thread):
    """[JS PR 2335]"""
    put(calls, thread, "1", {"a": ("b", b"a")}, {"a": 1})
    put(calls, thread, "2", {"b": ("b", b"b")}, {"a": 1, "b": 1})
    assert bytes_of(calls, thread, "2") == {"a": b"a", "b": b"b"}


def test_a_checkpoint_is_never_seen_without_its_values(sessions, thread):
    """[PostHog PR 34648]"""
    writer, reader = sessions(2)
    large = b"x" * 5000
    with writer.connection.transaction():
        put(writer, thread, "1", {"a": ("b", large)})
        put_writes(writer, thread, "1", "t", [("a", "b", large)])
        assert reader.rows("ckpt_get_typed", thread) == []
    assert [row.value for row in reader.rows("ckpt_get_typed", thread)] == [None, large, large]


def test_a_replaced_checkpoint_leaves_no_value_behind(calls, thread):
    """[RED#13]"""
    for number in range(10):
        put(calls, thread, "same", {"a": ("b", bytes([number]) * 5000)})
    assert calls.count("checkpoint_blobs", thread) == 1
    assert bytes_of(calls, thread, "same") == {"a": b"\x09" * 5000}


# Replay (D).


def test_a_long_history_is_complete_at_any_step(calls, thread):
    """[LG#8448]"""
    with calls.connection.transaction():
        for number in range(1300):
            calls.value("ckpt_put", thread, f'{{"n": {number}}}', checkpoint_id=f"{number:04}")
    assert len(calls.rows("ckpt_history", thread)) == 1300
    assert len(calls.rows("ckpt_history", thread, "0200")) == 201
    assert calls.value("ckpt_state", thread, "0200") == '{"n": 200}'


def test_parallel_writes_are_folded_by_path_not_by_task(calls, thread):
    """[LG#8382]"""
    calls.value("ckpt_put", thread, '{"list": []}', checkpoint_id="base", next=["a", "b"])
    calls.value("ckpt_put_writes", thread, "base", "a", '[["list", "second"]]', task_path="~, 1")
    calls.value("ckpt_put_writes", thread, "base", "b", '[["list", "first"]]', task_path="~, 0")
    calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}')
    assert calls.value("ckpt_channel", thread, "list") == '["first", "second"]'


@pytest.mark.parametrize("updates", [2, 3])
def test_a_fork_has_none_of_the_other_branches_writes(calls, thread, updates):
    """[LG#8443] [JS#2737]"""
    calls.value("ckpt_put", thread, '{"list": ["root"]}', checkpoint_id="root")
    leaves = []
    for number in range(updates):
        calls.value("ckpt_fork", thread, "root")
        base = calls.row("ckpt_latest", thread).checkpoint_id
        calls.value("ckpt_put_writes", thread, base, "same task", json.dumps([["list", number]]))
        leaves.append(calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}'))
    states = [json.loads(calls.value("ckpt_state", thread, leaf))["list"] for leaf in leaves]
    assert states == [["root", number] for number in range(updates)]


def test_a_channel_that_changes_its_type_folds_from_the_value_it_has(calls, thread):
    """[LG PR 8242] [LG#8384]"""
    calls.value("ckpt_put", thread, '{"m": ["before"]}', checkpoint_id="base", next=["t"])
    calls.value("ckpt_put_writes", thread, "base", "t", '[["m", "first after"]]')
    calls.value("ckpt_apply_writes", thread, reducers='{"m": "append"}')
    assert calls.value("ckpt_channel", thread, "m") == '["before", "first after"]'


def test_a_checkpoint_of_a_later_version_is_an_error_not_an_empty_state(calls, thread):
    """[LG PR 8109]"""
    calls.value("ckpt_put", thread, '{"messages": [1]}')
    calls.sql("UPDATE @s.checkpoints SET manifest = '\\xff'::bytea WHERE thread_id = %s RETURNING 1", thread)
    with refused("55000") as refusal:
        calls.value("ckpt_state", thread)
    assert "later version" in refusal.message


# Pending writes and recovery (E).


def test_writes_and_the_checkpoint_they_lead_to_commit_together(calls, uri, database, thread):
    """[LG#8039]"""
    calls.value("ckpt_put", thread, '{"n": 0}', checkpoint_id="base", next=["t"])
    with connect(uri(database)) as killed:
        killed.execute("BEGIN")
        killed.execute("SELECT ckpt_put_writes(%s, 'base', 't', '[[\"n\", 1]]')", [thread])
        killed.execute("SELECT ckpt_apply_writes(%s)", [thread])
        # The process dies before the commit.
        killed.close()
    assert calls.row("ckpt_resume", thread).todo == ["t"]
    calls.value("ckpt_put_writes", thread, "base", "t", '[["n", 1]]')
    calls.value("ckpt_apply_writes", thread)
    assert calls.value("ckpt_channel", thread, "n") == "1"


def test_thirty_clients_log_their_tasks_at_once(sessions, thread):
    """[LG#8115]"""
    clients = sessions(30)
    names = [f"task {number}" for number in range(30)]
    clients[0].value("ckpt_put", thread, "{}", checkpoint_id="base", next=names)
    log = lambda client, name: client.value("ckpt_put_writes", thread, "base", name, json.dumps([["x", name]]))
    assert at_once([lambda c=c, n=n: log(c, n) for c, n in zip(clients, names)]) == [1] * 30
    finished = json.loads(clients[0].row("ckpt_resume", thread).finished)
    assert finished == {name: [["x", name]] for name in names}


def test_an_interrupt_does_not_take_the_place_of_a_write(calls, thread):
    """[JS PR 2516] [JS PR 2518]"""
    put(calls, thread, "c", {"a": ("b", b"a")})
    put_writes(calls, thread, "c", "t", [("x", "b", b"first")])
    put_writes(calls, thread, "c", "t", [("__interrupt__", "b", b"stop")])
    assert writes(calls, thread) == [("t", -3, "__interrupt__", "b", b"stop"), ("t", 0, "x", "b", b"first")]


def test_list_shows_the_pending_writes_that_get_shows(calls, thread):
    """[JS#589]"""
    put(calls, thread, "c", {"a": ("b", b"a")})
    put_writes(calls, thread, "c", "t", [("__interrupt__", "b", b"stop")])
    assert calls.rows("ckpt_list_typed", thread) == calls.rows("ckpt_get_typed", thread)


def test_sends_of_an_old_checkpoint_are_there_for_the_next_one(calls, thread):
    """[JS PR 2853]"""
    put(calls, thread, "1", {"a": ("b", b"a")}, body='{"v": 3}')
    put_writes(calls, thread, "1", "t", [("__pregel_tasks", "b", b"one"), ("a", "b", b"x"), ("__pregel_tasks", "b", b"two")])
    put(calls, thread, "2", {"a": ("b", b"a")}, body='{"v": 3}')
    sends = [(row.idx, row.value) for row in calls.rows("ckpt_get_typed", thread) if row.kind == "send"]
    assert sends == [(0, b"one"), (2, b"two")]


def test_another_batch_for_a_finished_task_is_reported(calls, thread):
    """[EvoScientist PR 464]"""
    calls.value("ckpt_put", thread, "{}", checkpoint_id="base", next=["t"])
    calls.value("ckpt_put_writes", thread, "base", "t", '[["x", 1]]')
    with refused("23505"):
        calls.value("ckpt_put_writes", thread, "base", "t", '[["x", 2]]')
    assert json.loads(calls.row("ckpt_resume", thread).finished) == {"t": [["x", 1]]}


def test_writes_are_durable_when_the_call_returns(calls, uri, database, thread):
    """[LG PR 3762]"""
    with connect(uri(database)) as closed:
        closed.execute("SELECT ckpt_put_writes(%s, 'c', 't', '[[\"x\", 1]]')", [thread])
    calls.value("ckpt_put", thread, "{}", checkpoint_id="c", next=["t"])
    assert calls.row("ckpt_resume", thread).todo == []


def test_a_run_that_was_accepted_has_a_row_before_its_first_step(calls, thread):
    """[LG#8764]"""
    calls.value("ckpt_put", thread, "{}", '{"run_id": "accepted"}', next=["first"])
    [row] = calls.rows("ckpt_list", filter='{"run_id": "accepted"}')
    assert (row.thread_id, row.next) == (thread, ["first"])


def test_a_state_that_makes_no_sense_does_not_block_the_list(calls, thread):
    """[LG#6491]"""
    calls.value("ckpt_put", thread, '{"messages": "not a list"}', checkpoint_id="1")
    calls.value("ckpt_put", thread, '{"messages": []}', checkpoint_id="2")
    assert [row.checkpoint_id for row in calls.rows("ckpt_list", thread)] == ["2", "1"]


# Writers (F).


def test_of_two_workers_on_one_parent_the_second_is_told(sessions, thread):
    """[LG#8796] [ADK#917] [ADK#4333]"""
    one, two = sessions(2)
    one.value("ckpt_put", thread, "{}", checkpoint_id="base")
    one.value("ckpt_put", thread, '{"by": 1}', checkpoint_id="c1", expected_latest="base")
    with refused("40001"):
        two.value("ckpt_put", thread, '{"by": 2}', checkpoint_id="c2", expected_latest="base")
    assert [row.checkpoint_id for row in one.rows("ckpt_list", thread)] == ["c1", "base"]


def test_the_first_touch_of_a_log_by_many_clients(sessions, thread):
    """[OAI#2722] [ADK#3596]"""
    clients = sessions(8)
    append = lambda client, at: client.rows("ckpt_append", thread, json.dumps([{"role": "user", "content": str(at)}]))
    answers = at_once([lambda c=c, at=at: append(c, at) for at, c in enumerate(clients)])
    assert sorted(row.seq for [row] in answers) == list(range(1, 9))
    assert [row.seq for row in clients[0].rows("ckpt_messages", thread)] == list(range(1, 9))


def test_a_late_put_of_a_cancelled_run_does_not_hide_the_newer_one(calls, thread):
    """[LG#8810] [spring-ai-alibaba PR 4790]"""
    calls.value("ckpt_put", thread, '{"n": 1}', checkpoint_id="1")
    calls.value("ckpt_put", thread, '{"n": 3}', checkpoint_id="3")
    calls.value("ckpt_put", thread, '{"late": true}', checkpoint_id="2", parent_checkpoint_id="1")
    assert calls.value("ckpt_state", thread) == '{"n": 3}'


def test_two_saves_of_one_chat_keep_the_messages_of_both(sessions, thread):
    """[OW PR 24617]"""
    clients = sessions(2)
    common = [{"id": "q", "role": "user", "content": "hi"}]
    answers = [{"id": f"a{at}", "role": "assistant", "content": None, "tool_calls": []} for at in range(2)]
    at_once([lambda c=c, a=a: c.rows("ckpt_append", thread, json.dumps([*common, a])) for c, a in zip(clients, answers)])
    rows = clients[0].rows("ckpt_messages", thread)
    assert rows[0].msg_id == "q" and sorted(row.msg_id for row in rows[1:]) == ["a0", "a1"]


# Order (G).


def test_a_clock_that_steps_back_does_not_hide_the_newest(calls, thread):
    """[JS PR 2854]"""
    later, earlier = "1f0a0000-0000-6000-8000-000000000002", "1f0a0000-0000-6000-8000-000000000001"
    calls.value("ckpt_put", thread, '{"n": 1}', checkpoint_id=later)
    calls.value("ckpt_put", thread, '{"n": 2}', checkpoint_id=earlier)
    assert calls.row("ckpt_latest", thread).checkpoint_id == earlier
    assert calls.value("ckpt_put", thread, '{"n": 3}') > later


def test_messages_of_one_batch_keep_their_order(calls, thread):
    """[OAI#1900] [MAS#2707] [SPR#4740]"""
    roles = ["user", "assistant", "user", "assistant", "tool"]
    calls.rows("ckpt_append", thread, json.dumps([{"role": role, "content": str(at)} for at, role in enumerate(roles)]))
    calls.sql("UPDATE @s.checkpoint_messages SET created_at = now() WHERE thread_id = %s RETURNING 1", thread)
    assert [(row.role, row.content) for row in calls.rows("ckpt_messages", thread)] == [(r, str(n)) for n, r in enumerate(roles)]


def test_pages_of_a_log_and_of_a_list_overlap_nowhere(calls, thread):
    """[MAS PR 14022]"""
    calls.rows("ckpt_append", thread, json.dumps([{"role": "user", "content": str(at)} for at in range(100)]))
    seen, after = [], None
    while page := calls.rows("ckpt_messages", thread, after=after, max_rows=7):
        seen += [row.content for row in page]
        after = page[-1].seq
    assert seen == [str(at) for at in range(100)]


def test_order_survives_updates_and_vacuum(calls, thread):
    """[LC#6829]"""
    messages = [{"id": str(at), "role": "user", "content": str(at)} for at in range(20)]
    calls.rows("ckpt_append", thread, json.dumps(messages))
    messages[3]["content"] = "edited"
    calls.rows("ckpt_append", thread, json.dumps([messages[3]]), on_conflict="replace")
    calls.connection.execute("VACUUM FULL checkpoint_messages")
    assert [row.content for row in calls.rows("ckpt_messages", thread)] == [message["content"] for message in messages]


def test_an_empty_id_is_refused(calls, thread):
    """[AEG PR 258]"""
    with refused("22023"):
        calls.value("ckpt_put", thread, "{}", checkpoint_id="")


# Branches (H).


def test_each_step_after_a_travel_back_has_a_new_id(calls, thread):
    """[LG#4987]"""
    calls.value("ckpt_put", thread, '{"n": 0}', checkpoint_id="old")
    calls.value("ckpt_put", thread, '{"n": 1}')
    seen = {"old"}
    calls.value("ckpt_fork", thread, "old")
    for number in range(3):
        latest = calls.row("ckpt_latest", thread).checkpoint_id
        assert latest not in seen
        seen.add(latest)
        calls.value("ckpt_put", thread, json.dumps({"n": number}))


def test_a_fork_at_an_interrupt_is_what_a_resume_loads(calls, thread):
    """[LG PR 7498]"""
    calls.value("ckpt_put", thread, "{}", checkpoint_id="asked", next=["t"])
    calls.value("ckpt_put_writes", thread, "asked", "t", '[["__interrupt__", "sure?"]]')
    calls.value("ckpt_put", thread, '{"later": true}')
    fork = calls.value("ckpt_fork", thread, "asked")
    resumed = calls.row("ckpt_resume", thread)
    assert (resumed.checkpoint_id, resumed.todo, resumed.waiting) == (fork, ["t"], "{}")


def test_a_subgraph_as_it_was_at_a_moment_of_its_parent(calls, thread):
    """[LG PR 6223]"""
    before = calls.value("ckpt_put", thread, "{}", checkpoint_ns="sub")
    moment = calls.value("ckpt_put", thread, "{}")
    calls.value("ckpt_put", thread, "{}", checkpoint_ns="sub")
    # Ids are of one clock where the database makes them, also across namespaces.
    [row] = calls.rows("ckpt_list", thread, "sub", before=moment, max_rows=1)
    assert row.checkpoint_id == before


def test_a_fork_in_a_long_thread_costs_next_to_nothing(calls, thread):
    with calls.connection.transaction():
        for number in range(5000):
            calls.value("ckpt_put", thread, json.dumps({"n": number, "text": "x" * 2000}), checkpoint_id=f"{number:05}")
    stored = lambda: [calls.count(table, thread) for table in ("checkpoint_blobs", "checkpoint_segments")]
    before = stored()
    fork = calls.value("ckpt_fork", thread, "02500")
    assert stored() == before
    assert calls.value("ckpt_channel", thread, "n", fork) == "2500"
