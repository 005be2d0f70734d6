"""Sessions that do anything to a few threads, in an order drawn from a fixed seed: the only refusals are those that the calls
promise, never a deadlock, and what is left fits together."""

import json
import random

import psycopg
import pytest

from support import at_once

SESSIONS = 6
STEPS = 120
# The only write that is too large for its row.
WRITTEN = "w" * 3000
REFUSALS = {
    "ckpt_put": {"40001", "P0002"},
    "ckpt_put_writes": {"23505", "55000"},
    "ckpt_apply_writes": {"P0002", "55000"},
    "ckpt_fork": {"P0002"},
    "ckpt_append": {"23505"},
    "ckpt_rewind": set(),
    # Of messages that were edited, rewound or deleted meanwhile.
    "ckpt_put_summary": {"40001", "P0002", "22023"},
    "ckpt_delete_thread": set(),
}


def put(calls, thread, draw):
    known = [row.checkpoint_id for row in calls.rows("ckpt_list", thread, "", max_rows=5)]
    named = {"next": draw.choice([["a"], ["a", "b"], []])}
    if draw.random() < 0.5:
        named["checkpoint_id"] = f"id-{draw.randrange(8)}"
    if known and draw.random() < 0.3:
        named["parent_checkpoint_id"] = draw.choice(known)
    if known and draw.random() < 0.2:
        named["expected_latest"] = draw.choice(known)
    state = {"list": [draw.randrange(9)], "large": str(draw.randrange(5)) * 3000}
    calls.value("ckpt_put", thread, json.dumps(state), **named)


def put_writes(calls, thread, draw):
    row = calls.row("ckpt_latest", thread)
    base = row.checkpoint_id if row else "id-0"
    writes = draw.choice(['[["list", 1]]', "[]", '[["__error__", "e"]]', json.dumps([["large", WRITTEN]])])
    calls.value("ckpt_put_writes", thread, base, draw.choice("abc"), writes, on_conflict=draw.choice(["error", "keep", "replace"]))


def apply_writes(calls, thread, draw):
    calls.value("ckpt_apply_writes", thread, reducers='{"list": "append"}', next=["a"], tasks=draw.choice([None, [], ["a"]]))


def fork(calls, thread, draw):
    known = [row.checkpoint_id for row in calls.rows("ckpt_list", thread, "", max_rows=5)]
    calls.value("ckpt_fork", thread, draw.choice(known or ["id-0"]))


def append(calls, thread, draw):
    texts = [str(draw.randrange(30)) for _ in range(draw.randrange(1, 4))]
    messages = [{"role": "user", "content": text} | ({"id": text[0]} if draw.random() < 0.2 else {}) for text in texts]
    calls.rows("ckpt_append", thread, json.dumps(messages), on_conflict=draw.choice(["error", "keep", "replace"]))


def rewind(calls, thread, draw):
    calls.value("ckpt_rewind", thread, draw.randrange(20))


def summarise(calls, thread, draw):
    job = calls.row("ckpt_summary_due", thread, draw.randrange(6), lease="1 microsecond")
    if job:
        calls.value("ckpt_put_summary", thread, job.message_count, f"{job.message_count} messages", edits=job.edits)


def delete(calls, thread, draw):
    calls.value("ckpt_delete_thread", thread)


ACTIONS = [(put, 6), (put_writes, 8), (apply_writes, 5), (fork, 2), (append, 8), (rewind, 1), (summarise, 3), (delete, 1)]
CALLED = {put: "ckpt_put", put_writes: "ckpt_put_writes", apply_writes: "ckpt_apply_writes", fork: "ckpt_fork"} | {
    append: "ckpt_append",
    rewind: "ckpt_rewind",
    summarise: "ckpt_put_summary",
    delete: "ckpt_delete_thread",
}


def work(calls, threads, seed):
    draw = random.Random(seed)
    actions, weights = zip(*ACTIONS, strict=True)
    for _ in range(STEPS):
        [action] = draw.choices(actions, weights)
        try:
            action(calls, draw.choice(threads), draw)
        except psycopg.Error as error:
            # A thread that begins while its deletion is on its way is told to retry.
            begins_too_soon = error.sqlstate == "40001" and "is being deleted" in str(error)
            assert begins_too_soon or error.sqlstate in REFUSALS[CALLED[action]], f"{action.__name__}: {error.sqlstate} {error}"


def check_state(calls, thread):
    rows = calls.rows("ckpt_list", thread)
    parents = {row.checkpoint_id: row.parent_checkpoint_id for row in rows}
    assert {parent for parent in parents.values() if parent} <= parents.keys()
    large = set()
    if calls.sql("SELECT FROM @s.checkpoint_writes WHERE thread_id = %s AND digest IS NOT NULL LIMIT 1", thread):
        large.add(WRITTEN)
    for row in rows:
        state = json.loads(calls.value("ckpt_state", thread, row.checkpoint_id))
        assert state.keys() <= {"list", "large"}
        large.add(state.get("large"))
        chain = [step.checkpoint_id for step in calls.rows("ckpt_history", thread, row.checkpoint_id)]
        assert parents[chain[-1]] is None
    stored = calls.count("checkpoint_blobs", thread)
    # Every value that is kept out of line is some checkpoint's or some write's, and is kept once.
    assert stored == len(large - {None})
    assert bool(rows) == (calls.row("ckpt_latest", thread) is not None)
    assert bool(rows) == (calls.row("ckpt_resume", thread) is not None)


def check_log(calls, thread):
    rows = calls.rows("ckpt_messages", thread)
    for column in ("seq", "msg_id"):
        assert len({getattr(row, column) for row in rows}) == len(rows)
    counts = calls.sql("SELECT m.message_count FROM @s.checkpoint_messages m WHERE m.thread_id = %s ORDER BY m.seq", thread)
    assert [row[0] for row in counts] == list(range(1, len(rows) + 1))
    assert len(rows) == sum(row[0] for row in calls.sql("SELECT l.message_count FROM @s.checkpoint_logs l WHERE l.thread_id = %s", thread))
    calls.rows("ckpt_window", thread)
    [(inserted, seq)] = [
        (row.inserted, row.seq) for row in calls.rows("ckpt_append", thread, '[{"role": "user", "content": "the last"}]')
    ]
    assert inserted and seq > max((row.seq for row in rows), default=0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_left_fits_together(sessions, thread, seed):
    clients = sessions(SESSIONS)
    threads = [f"{thread}/{number}" for number in range(2)]
    results = at_once([lambda c=client, n=at: work(c, threads, f"{seed}/{n}") for at, client in enumerate(clients)])
    assert results == [None] * SESSIONS
    for name in threads:
        check_state(clients[0], name)
        check_log(clients[0], name)
