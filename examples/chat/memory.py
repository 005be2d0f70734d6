"""All that this application says to the extension, in one place: what the model sees is loaded, appended and summarised here."""

from psycopg import sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Json


class Memory:
    def __init__(self, conn, schema=None):
        """`schema` is where the extension lives, if that is not on the search_path."""
        self.conn = conn
        self.schema = sql.Identifier(schema) + sql.SQL(".") if schema else sql.SQL("")

    def load(self, request, current, preamble, size=60, max_tokens=None):
        """What the model should read, as a list of messages.

        `request` says where the conversation is: in the log, in a history string, or in a list of messages. `preamble` and
        `current` are only read; neither is stored by this.
        """
        return self.one(
            "SELECT {}ckpt_load(%s, size => %s, max_tokens => %s, current => %s, preamble => %s)",
            Json(request), size, max_tokens, json_or_null(current), json_or_null(preamble),
        )[0]

    def window(self, thread, current=None, preamble=None, size=60, max_tokens=None):
        """The same of a thread's log as rows, with kinds and token counts."""
        return self.all(
            "SELECT * FROM {}ckpt_window(%s, size => %s, max_tokens => %s, current => %s, preamble => %s) ORDER BY ordinal",
            thread, size, max_tokens, json_or_null(current), json_or_null(preamble),
        )

    def append(self, thread, messages, turn):
        """Appends what was said in a turn; returns how many messages were new. Called in the caller's transaction, if any."""
        return self.one(
            "SELECT count(*) FILTER (WHERE inserted) FROM {}ckpt_append(%s, %s, turn => %s)", thread, Json(messages), turn
        )[0]

    def replace(self, thread, turn, role, old, new):
        """Edits a message of the log in place. Its id follows from what was said, so nobody had to keep it."""
        self.one(
            "SELECT count(*) FROM {0}ckpt_append(%s, json_build_array(json_build_object("
            "'id', {0}msg_id(%s, %s, %s, %s), 'role', %s::text, 'content', %s::text)), turn => %s, on_conflict => 'replace')",
            thread, thread, role, old, turn, role, new, turn,
        )

    def messages(self, thread):
        """The raw log."""
        return self.all("SELECT * FROM {}ckpt_messages(%s) ORDER BY seq", thread)

    def summary_due(self, thread, size=60, every=1, lease="1 minute"):
        """A job for the summariser, or None: nothing to do, or somebody else is at it."""
        return self.one(
            "SELECT * FROM {}ckpt_summary_due(%s, size => %s, every => %s, lease => %s::interval)", thread, size, every, lease
        )

    def put_summary(self, thread, job, summary):
        self.one(
            "SELECT {}ckpt_put_summary(%s, %s, %s, edits => %s)", thread, job.message_count, summary, job.edits
        )

    def delete(self, thread):
        self.one("SELECT {}ckpt_delete_thread(%s)", thread)

    def one(self, query, *values):
        """One statement, one round trip; returns its first row."""
        return self.execute(query, values).fetchone()

    def all(self, query, *values):
        return self.execute(query, values).fetchall()

    def execute(self, query, values):
        return self.conn.cursor(row_factory=namedtuple_row).execute(sql.SQL(query).format(self.schema), values)


def json_or_null(value):
    return None if value is None else Json(value)


def said(role, content):
    return {"role": role, "content": content}
