"""A database full of every kind of thing, and what every reading function says of it: to compare two places with each other."""

import json

from support import ALL_TABLES, quoted

BIG = "x" * 5000


def fill(calls, prefix="fill"):
    """Threads with namespaces, large values, pending and folded writes, forks and logs; returns the thread ids."""
    threads = [f"{prefix}-{at}" for at in range(4)]
    if not calls.sql("SELECT 1 FROM @s.checkpoint_markup m WHERE m.name OPERATOR(pg_catalog.=) 'answers'"):
        calls.connection.execute(f"INSERT INTO {quoted(calls.schema)}.checkpoint_markup (name, kind, pattern) VALUES ('answers', 'pattern', 'answer')")
        calls.connection.execute(
            f"UPDATE {quoted(calls.schema)}.checkpoint_markup SET enabled = false WHERE name OPERATOR(pg_catalog.=) 'think'"
        )
    for at, thread in enumerate(threads):
        fill_state(calls, thread, at)
        fill_log(calls, thread, at)
    return threads


def fill_state(calls, thread, at):
    for namespace in ("", "child|1"):
        state = json.dumps({"messages": [BIG], "count": at, "other": BIG + "y", "text": "\0 \U0001f642"})
        metadata = json.dumps({"source": "input", "at": at, "nul": "\0"})
        first = calls.value("ckpt_put", thread, state, metadata, ["b", "a"], namespace)
        calls.value("ckpt_put_writes", thread, first, "a", '[["messages", ["m"]], ["count", 1.50]]', namespace, "p/2")
        calls.value("ckpt_put_writes", thread, first, "b", f'[["other", "{BIG}"]]', namespace, "p/1")
        reducers = '{"messages": "append", "count": "sum"}'
        second = calls.value("ckpt_apply_writes", thread, namespace, reducers=reducers, next=["c", "d", "e", "f"])
        calls.value("ckpt_put_writes", thread, second, "c", '[["count", 2]]', namespace)
        calls.value("ckpt_put_writes", thread, second, "d", '[["__error__", "broken"]]', namespace)
        calls.value("ckpt_put_writes", thread, second, "e", '[["__interrupt__", {"ask": 1.0}]]', namespace)
        calls.value("ckpt_put_writes", thread, second, "g", "[]", namespace)
        if at % 2:
            fork = calls.value("ckpt_fork", thread, first, namespace)
            calls.value("ckpt_put_writes", thread, fork, "a", '[["count", 1e16]]', namespace)
    calls.value("ckpt_put_writes", thread, "not-yet-there", "t", '[["early", 1]]', "early")


def fill_log(calls, thread, at):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for turn in range(6):
        exchange = [
            {"role": "user", "content": f"question {turn} \0"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": BIG},
            {"role": "assistant", "content": f"answer {turn}", "id": f"own-{turn}"},
        ]
        calls.rows("ckpt_append", thread, json.dumps(exchange), f"turn-{turn}")
    calls.value("ckpt_rewind", thread, 24 - at)
    calls.value("ckpt_put_summary", thread, 4, "They began.")
    calls.value("ckpt_put_summary", thread, 8 + at, "They went on.", "100 years")
    calls.row("ckpt_summary_due", thread, 4)


def answers(calls, threads):
    """Every reading function, asked in every way that the filled threads give reason for."""
    found = {}

    def ask(function, *args, **named):
        found[(function, args, json.dumps(named))] = calls.rows(function, *args, **named)

    ask("ckpt_list")
    ask("ckpt_list", checkpoint_ns="")
    ask("ckpt_list", filter='{"at": 1}')
    ask("ckpt_list", max_rows=3)
    for thread in threads:
        ask("ckpt_list", thread, filter='{"source": "fork"}')
        for namespace in ("", "child|1", "early", "unknown"):
            ask("ckpt_latest", thread, namespace)
            ask("ckpt_resume", thread, namespace)
            ask("ckpt_history", thread, checkpoint_ns=namespace)
        for row in calls.rows("ckpt_list", thread):
            ask("ckpt_state", thread, row.checkpoint_id, row.checkpoint_ns)
            ask("ckpt_state", thread, row.checkpoint_id, row.checkpoint_ns, channels=["count"])
            ask("ckpt_channel", thread, "messages", row.checkpoint_id, row.checkpoint_ns)
            ask("ckpt_history", thread, row.checkpoint_id, row.checkpoint_ns, max_rows=2)
        ask("ckpt_messages", thread)
        ask("ckpt_messages", thread, 3, 9, 4)
        for size in (0, 4, 9, 60):
            ask("ckpt_window", thread, size)
            ask("ckpt_load", json.dumps(thread), size, 1000)
        ask("ckpt_window", thread, strip=False)
        ask("ckpt_strip", f"answer <think>{thread}</think> [1].")
        ask("ckpt_tokens", thread)
        ask("ckpt_window", thread, current='{"role": "user", "content": "now"}', preamble='[{"role": "system", "content": "s"}]')
        found["msg_id", thread] = calls.msg_id(thread, "user", "text"), calls.msg_id(thread, "user", '{"a": 1.0}', kind="json")
    return found


def contents(calls):
    """All rows of all tables."""
    return {table: sorted(row[0] for row in calls.sql(f"SELECT t::text FROM @s.{table} t")) for table in ALL_TABLES}
