"""What the tests share: calling the extension's functions, and waiting for what another session does."""

import itertools
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.string import TextLoader

DEADLINE = 60.0
numbers = itertools.count(1)

TABLES = (
    "checkpoint_heads",
    "checkpoints",
    "checkpoint_blobs",
    "checkpoint_segments",
    "checkpoint_writes",
    "checkpoint_logs",
    "checkpoint_messages",
    "checkpoint_summaries",
)
ALL_TABLES = TABLES + ("checkpoint_threads", "checkpoint_graphs", "checkpoint_markup", "checkpoint_grants")


def connect(uri, **options):
    """A connection that gives json back as text, so that nothing between us and the server reads it. It has a name of its own."""
    options.setdefault("autocommit", True)
    options.setdefault("application_name", f"client-{next(numbers)}")
    connection = psycopg.connect(uri, row_factory=namedtuple_row, **options)
    for name in ("json", "jsonb"):
        connection.adapters.register_loader(name, TextLoader)
    return connection


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Calls:
    """Calls functions of the extension by their qualified name: `calls.value("ckpt_put", thread, state, next=[...])`."""

    def __init__(self, connection, schema="public"):
        self.connection = connection
        self.schema = schema

    def rows(self, function, *args, **named):
        places = ["%s"] * len(args) + [f"{quoted(name)} => %s" for name in named]
        statement = f"SELECT * FROM @s.{quoted(function)}({', '.join(places)})"
        return self.sql(statement, *args, *named.values())

    def row(self, function, *args, **named):
        rows = self.rows(function, *args, **named)
        assert len(rows) <= 1, rows
        return rows[0] if rows else None

    def value(self, function, *args, **named):
        row = self.row(function, *args, **named)
        assert len(row) == 1, row
        return row[0]

    def msg_id(self, thread_id, role, content, turn="", kind="text"):
        statement = f"SELECT @s.msg_id(%s, %s, %s::pg_catalog.{kind}, %s)"
        return self.sql(statement, thread_id, role, content, turn)[0][0]

    def sql(self, statement, *args):
        """Rows of a statement in which `@s` stands for the extension's schema."""
        schema = quoted(self.schema)
        # Where there are arguments, a % is the beginning of a place for one.
        schema = schema.replace("%", "%%") if args else schema
        return self.connection.execute(statement.replace("@s", schema), args or None).fetchall()

    def count(self, table, thread_id=None):
        if thread_id is None:
            return self.sql(f"SELECT pg_catalog.count(*) FROM @s.{table}")[0][0]
        return self.sql(f"SELECT pg_catalog.count(*) FROM @s.{table} WHERE thread_id OPERATOR(pg_catalog.=) %s", thread_id)[0][0]


class Refusal:
    """What `refused` saw: the error's fields."""

    sqlstate = message = detail = hint = None


@contextmanager
def refused(sqlstate):
    """The statement in the block must fail with this SQLSTATE."""
    refusal = Refusal()
    try:
        yield refusal
    except psycopg.Error as error:
        assert error.sqlstate == sqlstate, f"{error.sqlstate}: {error}"
        refusal.sqlstate = error.sqlstate
        refusal.message = error.diag.message_primary
        refusal.detail = error.diag.message_detail
        refusal.hint = error.diag.message_hint
    else:
        raise AssertionError(f"was not refused; expected {sqlstate}")


def wait_until(what, holds):
    """Polls until `holds()` is true; fails after a deadline that no working server reaches."""
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, f"still not so after {DEADLINE} s: {what}"
        time.sleep(0.005)


def wait_for_lock(observer, connection, has_ended):
    """Waits until the statement that `connection` runs in another thread waits for a lock; it must not end before."""
    # By its name: behind a pooler its process is another one in each transaction.
    statement = """SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks JOIN pg_catalog.pg_stat_activity USING (pid)
                   WHERE application_name = %s AND NOT granted"""
    name = connection.info.parameter_status("application_name")

    def waits():
        assert not has_ended(), "the other session did not wait for the lock"
        return observer.execute(statement, [name]).fetchone()[0]

    wait_until("the other session waits for a lock", waits)


def at_once(works):
    """Runs functions in threads that start together; returns their results, an exception in the place of one that failed."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
        return [future.exception() or future.result() for future in futures]


class Later:
    """A call made in another thread while it waits for a lock that another session holds."""

    def __init__(self, observer, calls, function, *args, **named):
        self.pool = ThreadPoolExecutor(1)
        self.future = self.pool.submit(calls.rows, function, *args, **named)
        wait_for_lock(observer.connection, calls.connection, self.future.done)

    def rows(self):
        with self.pool:
            return self.future.result(DEADLINE)

    def value(self):
        [[value]] = self.rows()
        return value


class Programs:
    """The server's programs, run as the user who may run them."""

    def __init__(self, bin_directory, run_as, scratch):
        self.bin = bin_directory
        self.run_as = run_as
        self.scratch = scratch
        self.clusters = 0

    def run(self, program, *args, **options):
        command = [os.path.join(self.bin, program), *args]
        environment = {"PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}
        environment.update(options.pop("environment", {}))
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run(self.as_server(command), cwd="/", env=environment, stderr=subprocess.STDOUT, **options)
        assert done.returncode == 0, f"{program} failed: {done.stdout!r}"
        return done.stdout

    def as_server(self, command):
        if not self.run_as:
            return command
        user = [f"--reuid={self.run_as}", f"--regid={self.run_as}", "--init-groups"]
        return ["setpriv", *user, "--", *command]

    def new_directory(self):
        # A socket's path may have 107 bytes, so these directories are in /tmp.
        made = subprocess.run(
            self.as_server(["mktemp", "-d", "/tmp/checkpointer.XXXXXX"]), capture_output=True, text=True, check=True
        )
        return made.stdout.strip()

    def exists(self, path):
        return subprocess.run(self.as_server(["test", "-e", path])).returncode == 0

    def remove(self, directory):
        subprocess.run(self.as_server(["rm", "-rf", "--", directory]), check=True)


class Cluster:
    """A cluster of a test's own. It listens on a socket alone, in a directory that only its user may enter."""

    def __init__(self, programs):
        programs.clusters += 1
        self.programs = programs
        self.data = os.path.join(programs.scratch, f"cluster-{programs.clusters}")
        self.socket = programs.new_directory()

    def init(self, **settings):
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self.programs.run("initdb", "-D", self.data, *options)
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        return self

    def copy(self, primary):
        """Becomes a streaming standby of another cluster."""
        self.programs.run("pg_basebackup", "-D", self.data, "-R", "-c", "fast", "--no-sync", "-d", primary.uri())
        return self

    def start(self):
        log = os.path.join(self.data, "log")
        # fsync guards against the machine's power, not against a killed process.
        options = f"-k {self.socket} -c listen_addresses='' -c fsync=off"
        # The server inherits the output; it must not be a pipe that is read to its end.
        arguments = ["start", "--wait", "--silent", "-D", self.data, "-l", log, "-o", options]
        self.programs.run("pg_ctl", *arguments, stdout=subprocess.DEVNULL)
        return self

    def stop(self, mode="fast"):
        self.programs.run("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}", "-D", self.data)

    def kill(self):
        """Kills the postmaster, and waits until the server's other processes have noticed."""
        with connect(self.uri()) as connection:
            processes = [pid for (pid,) in connection.execute("SELECT pid FROM pg_catalog.pg_stat_activity").fetchall()]
        pid_file = os.path.join(self.data, "postmaster.pid")
        with open(pid_file) as file:
            os.kill(int(file.readline()), signal.SIGKILL)
        wait_until("the killed server is gone", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes))
        os.remove(pid_file)

    def promote(self):
        """Makes a standby a primary; it has replayed all that it received."""
        self.programs.run("pg_ctl", "promote", "--wait", "--silent", "-D", self.data)
        with connect(self.uri()) as connection:
            recovers = "SELECT pg_catalog.pg_is_in_recovery()"
            wait_until("the standby is promoted", lambda: connection.execute(recovers).fetchone() == (False,))

    def uri(self, database="postgres"):
        return f"postgresql://postgres@/{database}?host={self.socket}"

    def remove(self):
        if self.programs.exists(os.path.join(self.data, "postmaster.pid")):
            self.stop("immediate")
        self.programs.remove(self.data)
        self.programs.remove(self.socket)


def split_json(text):
    """The elements of a JSON array, or the (key, value) pairs of an object: each value as it is written."""
    text = text.strip()
    parts, depth, start, at = [], 0, 1, 1
    while at < len(text):
        if text[at] == '"':
            at = json.decoder.scanstring(text, at + 1)[1]
            continue
        if text[at] in "[{":
            depth += 1
        elif text[at] in "]}" and depth:
            depth -= 1
        elif text[at] in ",]}" and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
        at += 1
    parts = [] if parts == [""] else parts
    return [split_member(part) for part in parts] if text[0] == "{" else parts


def split_member(member):
    key, end = json.decoder.scanstring(member, 1)
    return key, member[end:].lstrip()[1:].lstrip()
