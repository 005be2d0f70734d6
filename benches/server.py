"""The throwaway server: databases, connections, sizes, and pgbench."""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

# A benchmark without them would measure another server than the one that keeps its promises.
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")

LATENCY = re.compile(r"latency average = ([0-9.]+) ms")


class Server:
    def __init__(self, uri: str, programs: str) -> None:
        with psycopg.connect(uri) as connection:
            socket = setting(connection, "unix_socket_directories")
        # Over its Unix socket: the network is no part of what is compared.
        self.uri = make_conninfo(uri, host=socket)
        self.programs = Path(programs)

    def describe(self) -> dict[str, str]:
        names = (*DURABLE, "server_version", "shared_buffers", "max_wal_size", "wal_compression")
        with psycopg.connect(self.uri) as connection:
            settings = {name: setting(connection, name) for name in names}
        off = [name for name in DURABLE if settings[name] != "on"]
        if off:
            raise RuntimeError(f"the server does not run with default durability: {', '.join(off)} is not on")
        return settings

    def uri_of(self, database: str) -> str:
        return make_conninfo(self.uri, dbname=database)

    def new_database(self, name: str, *, extension: bool = False, compression: str | None = None) -> str:
        """Makes a database and returns its URI."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            database = sql.Identifier(name)
            connection.execute(sql.SQL("CREATE DATABASE {}").format(database))
            if compression:
                change = sql.SQL("ALTER DATABASE {} SET default_toast_compression = {}")
                connection.execute(change.format(database, sql.Literal(compression)))
        uri = self.uri_of(name)
        if extension:
            with psycopg.connect(uri) as connection:
                connection.execute("CREATE EXTENSION checkpointer")
        return uri

    def drop_database(self, name: str) -> None:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def setting(connection: psycopg.Connection[Any], name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row
    return row[0]


def connect(uri: str) -> psycopg.Connection[dict[str, Any]]:
    """As the peer's own `from_conn_string` connects: every statement is prepared at its first use."""
    return psycopg.connect(uri, autocommit=True, prepare_threshold=0, row_factory=dict_row)


def disk_of(connection: psycopg.Connection[Any], tables: tuple[str, ...]) -> int:
    statement = "SELECT sum(pg_total_relation_size(name::regclass))::bigint AS bytes FROM unnest(%s::text[]) AS name"
    row = connection.execute(statement, [list(tables)]).fetchone()
    assert row
    return row["bytes"]


def vacuum(connection: psycopg.Connection[Any], tables: tuple[str, ...]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(names))


WAL_SINCE = """
SELECT sum(record_length - fpi_length)::bigint AS records, sum(fpi_length)::bigint AS pages
FROM pg_get_wal_records_info(%s, pg_current_wal_flush_lsn())
WHERE xid::text <> '0'
"""


class Wal:
    """What transactions write to the WAL."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        self.connection = connection

    def position(self) -> str:
        row = self.connection.execute("SELECT pg_current_wal_insert_lsn()::text AS position").fetchone()
        assert row
        return row["position"]

    def since(self, position: str) -> tuple[int, int]:
        """Bytes of the records of transactions after a position, and of the whole pages in them. What autovacuum and the
        checkpointer write belongs to no transaction."""
        row = self.connection.execute(WAL_SINCE, [position]).fetchone()
        assert row
        return row["records"], row["pages"]


@dataclass(frozen=True)
class Script:
    """A pgbench transaction."""

    name: str
    text: str


def pgbench(server: Server, database: str, script: Script, seconds: int, first: int) -> float:
    """Microseconds per transaction of one client with prepared statements; the script's `:n` counts up from `first`."""
    target = conninfo_to_dict(server.uri_of(database))
    environment = dict(os.environ)
    for name, key in [("PGHOST", "host"), ("PGPORT", "port"), ("PGUSER", "user"), ("PGPASSWORD", "password")]:
        environment[name] = str(target[key])
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script.text)
        file.flush()
        options = ["-n", "-M", "prepared", "-c", "1", "-T", str(seconds), "-D", f"n={first}", "-f", file.name, database]
        command = [str(server.programs / "pgbench"), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    latency = LATENCY.search(done.stdout)
    if done.returncode != 0 or not latency:
        raise RuntimeError(f"pgbench of {script.name} failed: {done.stdout}{done.stderr}")
    return float(latency[1]) * 1000
