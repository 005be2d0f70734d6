"""ckpt_define_graph and ckpt_bind: reducers without naming them, channels that are never stored, and what may change later."""

import json

import pytest

from support import refused
from test_typed import put, put_writes

SECRET = "found-for-this-request-alone"
LONG = SECRET * 100
AGENT = {
    "messages": {"reducer": "add_messages"},
    "count": {"reducer": "sum"},
    "documents": {"persist": False},
}


@pytest.fixture
def bound(calls, thread):
    calls.value("ckpt_define_graph", "agent", json.dumps(AGENT))
    calls.value("ckpt_bind", thread, "agent")
    return calls


def anywhere(calls, thread, text):
    """Whether a text is in any column of any table's rows of a thread, as text or as bytes."""
    tables = calls.sql(
        "SELECT c.table_name FROM information_schema.columns c WHERE c.table_schema = %s AND c.column_name = 'thread_id'",
        calls.schema,
    )
    found = []
    for (table,) in tables:
        # bytea shows as hex.
        rows = calls.sql(f"SELECT t::text FROM @s.{table} t WHERE t.thread_id = %s", thread)
        found += [table for (row,) in rows if text in row or text.encode().hex() in row]
    return found


def test_a_fold_uses_the_reducers_of_the_graph(bound, thread):
    bound.value("ckpt_put", thread, '{"messages": [{"id": "a", "text": 1}], "count": 1}', next=["t"], checkpoint_id="base")
    writes = [["messages", {"id": "b"}], ["messages", {"id": "a", "text": 2}], ["count", 2], ["other", 3]]
    bound.value("ckpt_put_writes", thread, "base", "t", json.dumps(writes))
    bound.value("ckpt_apply_writes", thread)
    state = json.loads(bound.value("ckpt_state", thread))
    assert state == {"messages": [{"id": "a", "text": 2}, {"id": "b"}], "count": 3, "other": 3}


def test_a_reducer_that_the_call_names_goes_before(bound, thread):
    bound.value("ckpt_put", thread, '{"count": 1}', next=["t"], checkpoint_id="base")
    bound.value("ckpt_put_writes", thread, "base", "t", '[["count", 2], ["list", 5]]')
    bound.value("ckpt_apply_writes", thread, reducers='{"count": "replace", "list": "append"}')
    assert json.loads(bound.value("ckpt_state", thread)) == {"count": 2, "list": [5]}


@pytest.mark.parametrize("value", [SECRET, LONG], ids=["inline", "out of line"])
@pytest.mark.parametrize("ns", ["", "sub"])
def test_what_does_not_persist_reaches_no_table(bound, thread, value, ns):
    documents = [[{"text": value}]]
    named = {"checkpoint_ns": ns}
    bound.value("ckpt_put", thread, json.dumps({"a": 1, "documents": documents}), next=["t", "u"], checkpoint_id="1", **named)
    bound.value("ckpt_put", thread, json.dumps({"a": 2, "documents": documents}), next=["t", "u"], **named)
    bound.value("ckpt_put", thread, json.dumps({"documents": documents, "a": 1}), next=["t", "u"], checkpoint_id="1", **named)
    last = bound.row("ckpt_latest", thread, ns).checkpoint_id
    assert bound.value("ckpt_put_writes", thread, last, "t", json.dumps([["documents", documents]]), **named) == 0
    assert bound.value("ckpt_put_writes", thread, last, "u", json.dumps([["documents", documents], ["a", 3]]), **named) == 1
    resumed = bound.row("ckpt_resume", thread, ns)
    assert (json.loads(resumed.finished), resumed.todo) == ({"t": [], "u": [["a", 3]]}, [])
    folded = bound.value("ckpt_apply_writes", thread, ns)
    assert json.loads(bound.value("ckpt_state", thread, folded, ns)) == {"a": 3}
    bound.value("ckpt_fork", thread, folded, ns)
    assert anywhere(bound, thread, SECRET) == []


@pytest.mark.parametrize("value", [SECRET, LONG], ids=["inline", "out of line"])
def test_what_does_not_persist_reaches_no_table_in_the_typed_form(bound, thread, value):
    documents = ("b", value.encode())
    put(bound, thread, "1", {"documents": documents, "a": ("b", b"x")})
    put(bound, thread, "2", {"documents": documents}, {"documents": 2, "a": 1}, parent_checkpoint_id="1", expected_latest="1")
    put_writes(bound, thread, "2", "t", [("documents", *documents), ("a", "b", b"y")])
    put_writes(bound, thread, "2", "u", [("documents", *documents)])
    rows = bound.rows("ckpt_get_typed", thread)
    channels = {row.channel: (row.version, row.value) for row in rows if row.kind == "channel"}
    assert channels == {"documents": ("2", None), "a": ("1", b"x")}
    writes = [(row.task_id, row.idx, row.channel, row.value) for row in rows if row.kind == "write"]
    # That the second task has finished is said as LangGraph says it.
    assert writes == [("t", 1, "a", b"y"), ("u", 0, "__no_writes__", b"")]
    assert anywhere(bound, thread, SECRET) == []


def test_ephemeral_messages_reach_no_table(bound, thread):
    ephemeral = {"id": "e", "role": "system", "content": SECRET, "ephemeral": True}
    kept = {"id": "k", "role": "user", "content": "hi"}
    bound.value("ckpt_put", thread, json.dumps({"messages": [ephemeral, kept]}), next=["t"], checkpoint_id="base")
    assert json.loads(bound.value("ckpt_state", thread)) == {"messages": [kept]}
    bound.value("ckpt_put_writes", thread, "base", "t", json.dumps([["messages", [ephemeral]], ["messages", ephemeral]]))
    bound.value("ckpt_apply_writes", thread)
    assert json.loads(bound.value("ckpt_state", thread)) == {"messages": [kept]}
    assert anywhere(bound, thread, SECRET) == []


def test_repeats_stay_no_ops(bound, thread):
    state = json.dumps({"a": 1, "documents": [1]})
    bound.value("ckpt_put", thread, state, next=["t"], checkpoint_id="1")
    bound.value("ckpt_put_writes", thread, "1", "t", '[["documents", 1], ["a", 2]]')
    before = bound.rows("ckpt_list", thread)
    bound.value("ckpt_put", thread, state, next=["t"], checkpoint_id="1", expected_latest="other")
    assert bound.value("ckpt_put_writes", thread, "1", "t", '[["documents", 9], ["a", 2]]') == 0
    assert bound.rows("ckpt_list", thread) == before


def test_a_thread_that_is_bound_later_keeps_what_it_has_and_stores_no_more(calls, thread):
    calls.value("ckpt_put", thread, '{"documents": [1], "a": 1}', next=["t"], checkpoint_id="1")
    calls.value("ckpt_put_writes", thread, "1", "t", '[["documents", [2]], ["count", 5]]')
    calls.value("ckpt_define_graph", "agent", json.dumps(AGENT))
    calls.value("ckpt_bind", thread, "agent")
    folded = calls.value("ckpt_apply_writes", thread)
    assert json.loads(calls.value("ckpt_state", thread, folded)) == {"a": 1, "count": 5}
    assert json.loads(calls.value("ckpt_state", thread, "1")) == {"documents": [1], "a": 1}


def test_other_threads_and_tenants_are_not_bound(bound, calls, thread):
    calls.value("ckpt_put", f"{thread}/other", '{"documents": 1}')
    assert calls.value("ckpt_state", f"{thread}/other") == '{"documents": 1}'
    with calls.connection.transaction():
        calls.sql("SELECT set_config('checkpointer.tenant', 'acme', true)")
        calls.value("ckpt_put", thread, '{"documents": 1}')
        assert calls.value("ckpt_state", thread) == '{"documents": 1}'
    with calls.connection.transaction():
        calls.sql("SELECT set_config('checkpointer.tenant', 'acme', true)")
        with refused("P0002"), calls.connection.transaction():
            calls.value("ckpt_bind", thread, "agent")


def test_a_graph_can_be_declared_again(bound, thread):
    bound.value("ckpt_put", thread, '{"count": 1, "documents": 1}', next=["t"], checkpoint_id="1")
    bound.value("ckpt_define_graph", "agent", json.dumps(AGENT))
    # New channels, a channel that is no longer declared, one that persists from now on.
    bound.value(
        "ckpt_define_graph", "agent", '{"messages": {"reducer": "append"}, "notes": {"reducer": "append"}, "documents": {}}'
    )
    bound.value("ckpt_put_writes", thread, "1", "t", '[["count", 2], ["notes", "n"], ["documents", 2]]')
    bound.value("ckpt_apply_writes", thread)
    assert json.loads(bound.value("ckpt_state", thread)) == {"count": 2, "notes": ["n"], "documents": 2}


@pytest.mark.parametrize(
    "old, new, fits",
    [("sum", "append", False), ("append", "add_messages", False), ("merge", "sum", False), ("replace", "append", False)]
    + [("add_messages", "append", True), ("append", "union", True), ("sum", "replace", True)],
)
def test_a_reducer_changes_only_to_one_that_takes_what_threads_may_have(calls, thread, old, new, fits):
    def define(reducer, graph=thread):
        calls.value("ckpt_define_graph", graph, json.dumps({"c": {"reducer": reducer}}))

    define(old)
    define(new)  # Nothing is bound yet.
    define(old)
    calls.value("ckpt_bind", thread, thread)
    define(new, f"{thread}/next")
    if fits:
        define(new)
        calls.value("ckpt_bind", thread, f"{thread}/next")
        return
    with refused("55000") as refusal:
        define(new)
    assert '"c"' in refusal.message and old in refusal.detail and new in refusal.detail
    with refused("55000"):
        calls.value("ckpt_bind", thread, f"{thread}/next")


@pytest.mark.parametrize(
    "channels",
    ["[]", '"x"', '{"a": 1}', '{"a": {"reducer": "concat"}}', '{"a": {"persist": "no"}}', '{"a": {"ttl": 1}}', '{"": {}}']
    + ['{"%s": {}}' % ("x" * 256)],
)
def test_what_a_graph_cannot_mean_is_refused(calls, thread, channels):
    with refused("22023") as refusal:
        calls.value("ckpt_define_graph", thread, channels)
    assert refusal.hint
    assert calls.sql("SELECT 1 FROM @s.checkpoint_graphs WHERE graph = %s", thread) == []


def test_binding_to_nothing_is_refused(calls, thread):
    with refused("P0002") as refusal:
        calls.value("ckpt_bind", thread, f"{thread}/none")
    assert "ckpt_define_graph" in refusal.hint
