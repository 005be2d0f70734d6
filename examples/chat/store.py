"""The application's side of the database: what users see and what they pay. It works with or without the checkpointer."""

from pathlib import Path

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


class NotYours(Exception):
    """The thread belongs to another user."""


class Store:
    def __init__(self, conn):
        self.conn = conn

    def answer_of(self, user, thread, request_id):
        """The answer that a request got before, or None. Refuses a thread of somebody else."""
        row = self.conn.execute(
            "SELECT t.user_id, (SELECT m.content FROM chat_demo.messages m"
            " WHERE m.thread_id = t.thread_id AND m.request_id = %s AND m.role = 'assistant')"
            " FROM chat_demo.threads t WHERE t.thread_id = %s",
            [request_id, thread],
        ).fetchone()
        if row is None:
            return None
        if row[0] != user:
            raise NotYours(thread)
        return row[1]

    def add_turn(self, user, thread, request_id, message, reply):
        """Adds what was said, and what it cost; False if the request was answered already. In the caller's transaction.

        Two attempts of one request meet at the row of the thread: the second waits for the first, and then finds its rows.
        """
        owner, count = self.conn.execute(
            "INSERT INTO chat_demo.threads AS t (thread_id, user_id) VALUES (%s, %s)"
            " ON CONFLICT (thread_id) DO UPDATE SET user_id = t.user_id RETURNING t.user_id, t.messages",
            [thread, user],
        ).fetchone()
        if owner != user:
            raise NotYours(thread)
        added = self.conn.execute(
            "INSERT INTO chat_demo.messages (thread_id, number, request_id, role, content, tokens_in, tokens_out, cost)"
            " VALUES (%s, %s, %s, 'user', %s, 0, 0, 0), (%s, %s, %s, 'assistant', %s, %s, %s, %s)"
            " ON CONFLICT (thread_id, request_id, role) DO NOTHING",
            [thread, count + 1, request_id, message,
             thread, count + 2, request_id, reply.text, reply.tokens_in, reply.tokens_out, reply.cost],
        ).rowcount
        if added:
            self.conn.execute("UPDATE chat_demo.threads SET messages = messages + %s WHERE thread_id = %s", [added, thread])
        return added > 0

    def page(self, thread):
        """A thread as the front end shows it: (role, content) in order."""
        return self.conn.execute(
            "SELECT role, content FROM chat_demo.messages WHERE thread_id = %s ORDER BY number", [thread]
        ).fetchall()

    def bill(self, thread):
        """How many answers are billed, their tokens in and out, and the sum."""
        return self.conn.execute(
            "SELECT count(*) FILTER (WHERE cost > 0), sum(tokens_in), sum(tokens_out), sum(cost)"
            " FROM chat_demo.messages WHERE thread_id = %s",
            [thread],
        ).fetchone()

    def redact(self, thread, request_id, new):
        """Puts another text in the place of a user's message, and forgets what was learned from it; returns the old text."""
        self.conn.execute("SELECT FROM chat_demo.threads WHERE thread_id = %s FOR UPDATE", [thread])
        number, old = self.conn.execute(
            "SELECT number, content FROM chat_demo.messages WHERE thread_id = %s AND request_id = %s AND role = 'user'",
            [thread, request_id],
        ).fetchone()
        self.conn.execute(
            "UPDATE chat_demo.messages SET content = %s WHERE thread_id = %s AND number = %s", [new, thread, number]
        )
        self.conn.execute("DELETE FROM chat_demo.facts WHERE thread_id = %s AND number = %s", [thread, number])
        return old
