"""What the model reads: a window and an append on a log of 10,000 messages and of 100, and a window against the rows alone."""

import json
import random
from typing import Any

from ..arms.ours import Ours
from ..prose import Prose
from ..results import Results, progress
from ..server import Script
from ..settings import SEED, Bench
from ..timing import interleaved
from .floors import compare

SECTION = "window"
DATABASE = "window"
SHORT, LONG = 100, 10_000
# Appends make a log longer, so there are many short ones to take turns.
SHORT_THREADS = 50
SHOWN = 60

APPEND = "SELECT * FROM ckpt_append(%s, %s)"
WINDOW = "SELECT * FROM ckpt_window(%s, %s)"

# As the window gives them, so that both send the same bytes; of all messages, so that both find them among as many.
ROWS = """
CREATE TABLE floor_rows (
    thread_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    ordinal integer NOT NULL,
    kind text NOT NULL,
    role text NOT NULL,
    content text NOT NULL,
    msg_id text NOT NULL,
    tokens integer NOT NULL,
    message json NOT NULL,
    PRIMARY KEY (thread_id, seq)
)
"""
FILL = """
INSERT INTO floor_rows
SELECT 'long', seq, ordinal, kind, role, content, msg_id, tokens, message FROM ckpt_window('long', 1000000) WHERE seq IS NOT NULL
"""


class Logs:
    def __init__(self, bench: Bench) -> None:
        self.arm = Ours.make(bench.server, "ours", DATABASE)
        self.prose = Prose(f"{SEED} window")
        self.random = random.Random(f"{SEED} window")
        for at in range(SHORT_THREADS):
            self.append(f"short-{at}", SHORT)
        self.append("long", LONG)
        self.arm.connection.execute(ROWS)
        self.arm.connection.execute(FILL)
        self.arm.tidy()
        self.arm.connection.execute("VACUUM ANALYZE floor_rows")

    def messages(self, count: int) -> str:
        """Every answer has markup, as a retrieval chat's do."""
        return json.dumps([self.answer() if at % 2 else {"role": "user", "content": self.prose.text(600)} for at in range(count)])

    def answer(self) -> dict[str, Any]:
        first, second = self.prose.text(300), self.prose.text(250)
        return {"role": "assistant", "content": f"<cite index=\"1\">{first}</cite> [1][2].\n\n{second}【4†source】."}

    def append(self, thread: str, count: int) -> None:
        rows = self.arm.connection.execute(APPEND, (thread, self.messages(count))).fetchall()
        assert len(rows) == count and all(inserted for _, _, inserted in rows)

    def window(self, thread: str) -> None:
        rows = self.arm.connection.execute(WINDOW, (thread, SHOWN)).fetchall()
        # Between summary and marker as many as were asked for, and the final turn.
        assert len(rows) == SHOWN + 4

    def short(self) -> str:
        return f"short-{self.random.randrange(SHORT_THREADS)}"


def measure(bench: Bench, results: Results) -> None:
    progress(f"ckpt_window and ckpt_append on {LONG:,} messages and on {SHORT}")
    logs = Logs(bench)
    windows = {"ckpt_window, short": lambda _: logs.window(logs.short()), "ckpt_window, long": lambda _: logs.window("long")}
    appends = {"ckpt_append, short": lambda _: logs.append(logs.short(), 2), "ckpt_append, long": lambda _: logs.append("long", 2)}
    for name, calls in (("window_growth", windows), ("append_growth", appends)):
        short, long = (results.times(SECTION, label, seconds).median for label, seconds in interleaved(calls, bench.size.reads).items())
        results.ratio(name, long, short)
    logs.arm.close()
    progress(f"ckpt_window against the {SHOWN} rows alone, by pgbench")
    # Both read a log of 10,000 messages.
    ours = Script("ckpt_window", f"SELECT * FROM ckpt_window('long', {SHOWN});\n")
    columns = "ordinal, kind, role, content, msg_id, seq, tokens, message"
    floor = Script("SELECT of the rows", f"SELECT {columns} FROM floor_rows WHERE thread_id = 'long' ORDER BY seq DESC LIMIT {SHOWN};\n")
    compare(bench, results, SECTION, DATABASE, "window_floor", ours, floor)
    bench.server.drop_database(DATABASE)
