"""What breadth costs: the same calls on a random thread of a hundred, and of very many, in a database each."""

import json
import random
from collections.abc import Callable
from typing import Any

from ..arms.ours import Ours
from ..prose import Prose
from ..results import Results, progress
from ..settings import SEED, Bench
from ..timing import interleaved

SECTION = "breadth"
FEW = 100
BATCH = 1000

LOAD_STATES = """SELECT count(ckpt_put('thread-' || t, %s)) FROM generate_series(%s::int, %s) AS t"""
LOAD_MESSAGES = """SELECT count(*) FROM generate_series(%s::int, %s) AS t, ckpt_append('thread-' || t, %s)"""

PUT = "SELECT ckpt_put(%s, %s)"
LATEST = "SELECT * FROM ckpt_latest(%s)"
APPEND = "SELECT * FROM ckpt_append(%s, %s)"
WINDOW = "SELECT * FROM ckpt_window(%s)"


class Threads:
    """A database with so many threads, each a small state and a log of six messages."""

    def __init__(self, bench: Bench, count: int) -> None:
        self.count = count
        self.arm = Ours.make(bench.server, "ours", f"breadth_{count}")
        self.random = random.Random(f"{SEED} breadth")
        self.prose = Prose(f"{SEED} breadth")
        self.load()
        self.arm.tidy()

    def load(self) -> None:
        for first in range(0, self.count, BATCH):
            last = min(first + BATCH, self.count) - 1
            self.arm.connection.execute(LOAD_STATES, (self.state(0), first, last))
            self.arm.connection.execute(LOAD_MESSAGES, (first, last, self.messages(6)))

    def state(self, turn: int) -> str:
        small = {"turn": turn, "cost": 0.1, "user": "ann", "language": "en", "topic": self.prose.text(20), "approved": True}
        return json.dumps(small)

    def messages(self, count: int) -> str:
        roles = ("user", "assistant")
        return json.dumps([{"role": roles[at % 2], "content": self.prose.text(200)} for at in range(count)])

    def call(self, statement: str, *arguments: str) -> None:
        thread = f"thread-{self.random.randrange(self.count)}"
        rows = self.arm.connection.execute(statement, (thread, *arguments)).fetchall()
        assert rows

    def calls(self) -> dict[str, Callable[[int], Any]]:
        return {
            "ckpt_latest": lambda _: self.call(LATEST),
            "ckpt_put": lambda at: self.call(PUT, self.state(at)),
            "ckpt_append": lambda _: self.call(APPEND, self.messages(2)),
            "ckpt_window": lambda _: self.call(WINDOW),
        }


def measure(bench: Bench, results: Results) -> None:
    many = bench.size.wide_threads
    progress(f"{FEW} threads and {many:,} threads in a database")
    databases = {count: Threads(bench, count) for count in (FEW, many)}
    functions = {count: threads.calls() for count, threads in databases.items()}
    for name in functions[FEW]:
        calls = {f"{name}, {count:,} threads": functions[count][name] for count in databases}
        times = interleaved(calls, bench.size.reads)
        few, wide = (results.times(SECTION, label, seconds).median for label, seconds in times.items())
        results.figure(SECTION, f"{name}, {many:,} threads / {FEW}", wide / few)
    for count, threads in databases.items():
        results.figure(SECTION, f"disk, {count:,} threads, bytes", threads.arm.disk())
        threads.arm.close()
        bench.server.drop_database(f"breadth_{count}")
