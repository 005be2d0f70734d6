"""Facts, extracted from the application's messages every six of a thread. They are for the user's page and for reports.

Nothing here is called, and the table is never read, on the way to the model: see recall_bench.py for what that would cost.
"""

import hashlib

import psycopg

BATCH = 6


def extract_due(conn, thread, model, batch=BATCH):
    """Extracts facts from the next messages, if there are enough. Returns how many were new, or None if nothing was done.

    The model is asked outside of any transaction. Facts and watermark then move together, so a crash before that leaves all to
    do, and after it nothing. Of two workers with the same messages one moves the watermark, and the other throws its facts away.
    """
    user, done = conn.execute(
        "SELECT user_id, extracted FROM chat_demo.threads WHERE thread_id = %s", [thread]
    ).fetchone()
    messages = waiting(conn, thread, done, batch)
    if len(messages) < batch:
        return None
    found = model.extract([(role, content) for _, role, content in messages])
    with conn.transaction():
        moved = conn.execute(
            "UPDATE chat_demo.threads SET extracted = %s WHERE thread_id = %s AND extracted = %s",
            [messages[-1][0], thread, done],
        ).rowcount
        # The row of the thread is locked now. A message that was redacted while the model read it must leave no facts.
        if not moved or waiting(conn, thread, done, batch) != messages:
            raise psycopg.Rollback()
        return sum(add(conn, user, thread, messages[at][0], fact) for at, fact in found)


def waiting(conn, thread, done, batch):
    """The messages that come next: (number, role, content)."""
    return conn.execute(
        "SELECT number, role, content FROM chat_demo.messages WHERE thread_id = %s AND number > %s ORDER BY number LIMIT %s",
        [thread, done, batch],
    ).fetchall()


def add(conn, user, thread, number, fact):
    return conn.execute(
        "INSERT INTO chat_demo.facts (fact_id, user_id, thread_id, number, fact) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (fact_id) DO NOTHING",
        [key(user, fact), user, thread, number, fact],
    ).rowcount


def key(user, fact):
    """Of what is said, not of when and where: told again, it is the same fact."""
    plain = " ".join(fact.lower().split())
    return hashlib.sha256(f"{len(user)} {user} {plain}".encode()).hexdigest()


def profile(conn, user):
    """What the user's page shows."""
    rows = conn.execute("SELECT fact FROM chat_demo.facts WHERE user_id = %s ORDER BY created_at, number", [user])
    return [fact for fact, in rows]
