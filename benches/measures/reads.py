"""The server's part of a read: against the bare bytes, and of old versions.

Both sides go through the same calls of libpq, ask for binary results and are not decoded: what is timed ends when the result is
there. Python would take as long again to make objects of it, whoever sent it."""

import random
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from ..arms.ours import Ours
from ..results import Results
from ..settings import SEED, Bench
from ..timing import interleaved
from .growth import THREAD

SECTION = "reads, server time"
VALUES = "SELECT value FROM ckpt_get_typed($1)"
VALUES_OF = "SELECT value FROM ckpt_get_typed($1, '', $2)"

BARE_TABLE = "CREATE TABLE bare_values (id text COLLATE \"C\", channel text, value bytea, PRIMARY KEY (id, channel))"
BARE_UNCOMPRESSED = "ALTER TABLE bare_values ALTER value SET STORAGE EXTERNAL"
BARE_FILL = """
INSERT INTO bare_values
SELECT $1, channel, value FROM ckpt_get_typed($1) WHERE kind = 'channel'
UNION ALL SELECT 'other-' || i, 'messages', '\\x00' FROM generate_series(1, 10000) AS i
"""
BARE_VALUES = "SELECT value FROM bare_values WHERE id = $1"


class RawStatement:
    """A prepared statement whose result stays as it comes from the socket."""

    def __init__(self, connection: psycopg.Connection[Any], name: str, statement: str) -> None:
        self.libpq = connection.pgconn
        self.name = name.encode()
        self.libpq.prepare(self.name, statement.encode())

    def __call__(self, *arguments: str) -> psycopg.pq.abc.PGresult:
        result = self.libpq.exec_prepared(self.name, [a.encode() for a in arguments], result_format=1)
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise RuntimeError(f"{self.name.decode()} failed: {result.error_message.decode()}")
        return result

    def values(self, *arguments: str) -> list[bytes]:
        result = self(*arguments)
        return sorted(value for row in range(result.ntuples) if (value := result.get_value(row, 0)) is not None)


def server_time(bench: Bench, results: Results, ours: Ours) -> None:
    """The thread's latest checkpoint, and a bare SELECT of the same bytes from an uncompressed column."""
    for statement in (BARE_TABLE, BARE_UNCOMPRESSED):
        ours.connection.execute(statement)
    RawStatement(ours.connection, "bare_fill", BARE_FILL)(THREAD)
    ours.connection.execute("VACUUM (ANALYZE) bare_values")
    read = RawStatement(ours.connection, "read", VALUES)
    bare = RawStatement(ours.connection, "bare", BARE_VALUES)
    if read.values(THREAD) != bare.values(THREAD):
        raise RuntimeError("the bare table does not hold the same bytes")
    calls: dict[str, Callable[[int], Any]] = {"ours": lambda _: read(THREAD), "bare SELECT": lambda _: bare(THREAD)}
    times = interleaved(calls, bench.size.reads)
    ours_time, floor = (results.times(SECTION, f"turn 500, {name}", times[name]) for name in calls)
    results.figure(SECTION, "turn 500, bytes", sum(map(len, bare.values(THREAD))))
    results.ratio("get_500_floor", ours_time.median, floor.median)


def old_versions(bench: Bench, results: Results, ours: Ours, ids: list[str]) -> None:
    """Any version of the thread and, since old ones of a growing thread are smaller, those of the last tenth by themselves."""
    chance = random.Random(f"{SEED} old versions")
    read = RawStatement(ours.connection, "read_of", VALUES_OF)
    calls: dict[str, Callable[[int], Any]] = {
        "newest": lambda _: read(THREAD, ids[-1]),
        "random": lambda _: read(THREAD, chance.choice(ids)),
        "random of the last tenth": lambda _: read(THREAD, chance.choice(ids[-len(ids) // 10 :])),
    }
    times = interleaved(calls, bench.size.reads)
    medians = {name: results.times(SECTION, f"version: {name}", seconds).median for name, seconds in times.items()}
    results.ratio("old_version_read", medians["random"], medians["newest"])
    recent = medians["random of the last tenth"] / medians["newest"]
    results.figure(SECTION, "version: random of the last tenth / newest", recent)
