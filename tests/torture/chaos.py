"""Keeps the clients at work, and kills: a client, a server's process, a connection, the server."""

import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress

import psycopg

from torture import clients
from torture.proxy import Proxy
from torture.requests import GRAPH

SLOTS = 16
# The last two cost a recovery each.
KILLS = {"client": 45, "cut": 24, "terminate": 23, "backend": 4, "immediate": 4}
PROGRESS = 10.0
DEADLINE = 60.0
# What a server may not say, whatever is done to it.
ALARMS = ("deadlock detected", "PANIC", "panicked", "TRAP:", "invalid page", "could not read block", "XX000", "XX001", "checksum")


class Chaos:
    """One run on a cluster of its own, which is started here and still runs at the end."""

    def __init__(self, cluster, kills, seed, say=print, era=20.0, pause=0.06):
        self.cluster, self.kills, self.say = cluster, kills, say
        self.draw = random.Random(seed)
        self.directory = tempfile.mkdtemp(prefix="torture.")
        self.settings = {"seed": seed, "began": time.monotonic(), "era": era, "pause": pause, "uri": cluster.uri()}
        for name in ("records", "proxy"):
            self.settings[name] = os.path.join(self.directory, name)
            os.mkdir(self.settings[name])
        self.settings["stop"] = os.path.join(self.directory, "stop")
        self.proxy = Proxy(self.settings["proxy"], SLOTS, cluster.socket)
        # Forked from a process that has imported everything: a start costs milliseconds.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["torture.clients"])
        self.processes, self.generations = [None] * SLOTS, [0] * SLOTS
        self.admin = None
        self.done, self.findings = Counter(), []
        # A crash takes the statistics with it: the sum of what earlier lives of the server had, and what this one has.
        self.deadlocks_before = self.deadlocks = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process:
                process.kill()
                process.join()
        if self.admin:
            self.admin.close()
        if self.proxy.thread.is_alive():
            self.proxy.stop()
        shutil.rmtree(self.directory)

    # The server

    def ask(self, query, *args):
        """On a connection of our own, past the proxy; waits for a server that is coming up."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                if self.admin is None or self.admin.closed:
                    self.admin = psycopg.connect(self.cluster.uri(), autocommit=True)
                return self.admin.execute(query, args or None).fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                if self.admin is not None:
                    self.admin.close()
                time.sleep(0.02)

    def count_deadlocks(self):
        now = self.ask("SELECT sum(deadlocks)::int FROM pg_stat_database")[0][0]
        if now < self.deadlocks:
            self.deadlocks_before += self.deadlocks
        self.deadlocks = now

    def server_says(self):
        with open(os.path.join(self.cluster.data, "log"), errors="replace") as log:
            for line in log:
                crash = "terminated by signal" in line and "signal 9" not in line
                if crash or any(alarm in line for alarm in ALARMS):
                    yield f"the server says: {line.strip()[:300]}"

    def prepare(self):
        self.cluster.start()
        with psycopg.connect(self.cluster.uri(), autocommit=True) as connection:
            # A deadlock must be seen before one of its two is killed for another reason.
            connection.execute("ALTER SYSTEM SET deadlock_timeout = '100ms'")
            connection.execute("ALTER SYSTEM SET log_error_verbosity = 'verbose'")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE EXTENSION checkpointer")
            connection.execute(GRAPH)
        self.proxy.start()

    # The clients

    def begin(self, slot):
        process = self.context.Process(target=clients.main, args=(slot, self.generations[slot], self.settings), daemon=True)
        process.start()
        self.processes[slot] = process
        self.generations[slot] += 1

    def look_after(self):
        """A client that ends by itself has found something."""
        for slot, process in enumerate(self.processes):
            if not process.is_alive():
                process.join()
                if process.exitcode:
                    self.findings.append(f"client {slot} failed: exit code {process.exitcode}, see its traceback")
                self.begin(slot)

    def pid_of(self, slot):
        rows = self.ask("SELECT pid FROM pg_stat_activity WHERE application_name = %s", f"torture-{slot}")
        return rows[0][0] if rows else None

    # The kills: each tells whether it was done

    def client(self, slot):
        process = self.processes[slot]
        if not self.proxy.during_write(slot, self.delay(), process.kill):
            return False
        process.join()
        self.begin(slot)
        return True

    def cut(self, slot):
        return self.proxy.cut(slot)

    def terminate(self, slot):
        pid = self.pid_of(slot)
        reached = pid and self.proxy.during_write(slot, 0, lambda: None)
        return bool(reached) and self.ask("SELECT pg_terminate_backend(%s)", pid)[0][0]

    def backend(self, slot):
        self.count_deadlocks()
        pid = self.pid_of(slot)
        if not pid:
            return False
        return self.proxy.during_write(slot, self.delay(), lambda: os.kill(pid, signal.SIGKILL))

    def immediate(self, slot):
        self.count_deadlocks()
        self.proxy.during_write(slot, 0, lambda: None)
        self.cluster.stop("immediate")
        self.cluster.start()
        return True

    def delay(self):
        """Mostly within the call, sometimes after it."""
        return self.draw.uniform(0, 0.006)

    def run(self):
        """Kills as often as told, then lets the clients come to their end."""
        self.prepare()
        for slot in range(SLOTS):
            self.begin(slot)
        reported, began = time.monotonic(), time.monotonic()
        kinds, weights = zip(*KILLS.items(), strict=True)
        while self.done.total() < self.kills:
            [kind] = self.draw.choices(kinds, weights)
            slot = self.draw.randrange(SLOTS)
            with suppress(ProcessLookupError):
                self.done[kind] += bool(getattr(self, kind)(slot))
            self.look_after()
            if time.monotonic() - reported > PROGRESS:
                reported = time.monotonic()
                self.count_deadlocks()
                kinds_done = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
                self.say(f"torture: {self.done.total()} of {self.kills} kills after {reported - began:.0f} s ({kinds_done})")
            time.sleep(self.draw.uniform(0, 0.3))
        self.finish()

    def finish(self):
        with open(self.settings["stop"], "w"):
            pass
        end = time.monotonic() + DEADLINE
        for slot, process in enumerate(self.processes):
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                self.findings.append(f"client {slot} has not come to its end after {DEADLINE} s")
            elif process.exitcode:
                self.findings.append(f"client {slot} failed: exit code {process.exitcode}, see its traceback")
        # What killed clients had sent is still done.
        while self.ask("SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'torture-')")[0][0]:
            if time.monotonic() > end:
                self.findings.append("a server's process of a client that is gone is still at work")
                break
            time.sleep(0.02)
        self.count_deadlocks()
        if deadlocks := self.deadlocks_before + self.deadlocks:
            self.findings.append(f"{deadlocks} deadlocks")
        self.findings += self.server_says()
