"""A backend that is killed takes the server down with it: all that was acknowledged is there afterwards, nothing is half
done, and the work can be taken up where it stopped."""

import json
import os
import signal
import threading
from contextlib import contextmanager

import psycopg
import pytest

from answers import answers, contents, fill
from support import Calls, at_once, connect, wait_until

WRITERS = 4
ROUNDS = 3
LARGE = "x" * 3000


@pytest.fixture
def cluster(make_cluster):
    cluster = make_cluster().init().start()
    with connect(cluster.uri()) as connection:
        connection.execute("CREATE EXTENSION checkpointer")
    return cluster


def is_up(cluster):
    try:
        connect(cluster.uri()).close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def reopened(cluster):
    wait_until("the server is up again", lambda: is_up(cluster))
    with connect(cluster.uri()) as connection:
        yield Calls(connection)


def kill(connection):
    """Kills the server's process of a connection, and waits until the postmaster has noticed."""
    os.kill(connection.info.backend_pid, signal.SIGKILL)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_nothing_of_an_open_transaction_is_left(cluster):
    with connect(cluster.uri()) as keeper:
        threads = fill(Calls(keeper))
        expected, before = answers(Calls(keeper), threads), contents(Calls(keeper))
    victim = connect(cluster.uri(), autocommit=False)
    calls = Calls(victim)
    for thread in threads[:2]:
        calls.value("ckpt_put", thread, json.dumps({"new": LARGE}))
        calls.value("ckpt_put_writes", thread, calls.row("ckpt_latest", thread).checkpoint_id, "t", "[]")
        calls.value("ckpt_apply_writes", thread)
        calls.rows("ckpt_append", thread, '[{"role": "user", "content": "new"}]')
        calls.value("ckpt_fork", thread, calls.row("ckpt_latest", thread).checkpoint_id)
    calls.value("ckpt_rewind", threads[2], 2)
    calls.value("ckpt_delete_thread", threads[3])
    fill(calls, "new")
    kill(victim)
    with reopened(cluster) as calls:
        assert contents(calls) == before
        assert answers(calls, threads) == expected


class Writer:
    """Does numbered steps on a thread of its own and notes what was acknowledged. A step taken up again changes nothing twice."""

    def __init__(self, number):
        self.thread = f"writer-{number}"
        self.acknowledged = {"logged": 0, "folded": 0, "said": 0}

    def step(self, calls):
        base = calls.row("ckpt_resume", self.thread)
        if base is None:
            calls.value("ckpt_put", self.thread, '{"log": [], "large": ""}', next=["task"], checkpoint_id="start")
            base = calls.row("ckpt_resume", self.thread)
        number = len(json.loads(calls.value("ckpt_channel", self.thread, "log")))
        large = json.dumps(f"{number}{LARGE}")
        calls.value("ckpt_put_writes", self.thread, base.checkpoint_id, "task", f'[["log", {number}], ["large", {large}]]')
        self.acknowledged["logged"] = number + 1
        calls.rows("ckpt_append", self.thread, json.dumps([{"role": "user", "content": str(number)}]))
        self.acknowledged["said"] = number + 1
        calls.value(
            "ckpt_apply_writes", self.thread, checkpoint_id=base.checkpoint_id, reducers='{"log": "append"}', next=["task"]
        )
        self.acknowledged["folded"] = number + 1

    def check(self, calls):
        """All that was acknowledged is there, and at most the one call that was under way besides."""
        log = json.loads(calls.value("ckpt_channel", self.thread, "log"))
        assert log == list(range(len(log)))
        assert self.acknowledged["folded"] <= len(log) <= self.acknowledged["folded"] + 1
        chain = calls.rows("ckpt_history", self.thread)
        assert len(chain) == len(log) + 1
        for row, length in zip(chain, range(len(log), -1, -1), strict=True):
            state = json.loads(calls.value("ckpt_state", self.thread, row.checkpoint_id))
            assert state == {"log": log[:length], "large": f"{length - 1}{LARGE}" if length else ""}
        finished = json.loads(calls.row("ckpt_resume", self.thread).finished)
        assert len(log) + len(finished) >= self.acknowledged["logged"]
        messages = [(row.seq, row.content) for row in calls.rows("ckpt_messages", self.thread)]
        assert messages == [(at + 1, str(at)) for at in range(len(messages))]
        assert self.acknowledged["said"] <= len(messages) <= self.acknowledged["said"] + 1


def test_killed_in_the_middle_of_work_nothing_acknowledged_is_lost_and_nothing_is_done_twice(cluster):
    writers = [Writer(number) for number in range(WRITERS)]
    for round_number in range(1, ROUNDS + 1):
        working = threading.Barrier(WRITERS + 1)
        connections = [connect(cluster.uri()) for _ in writers]

        def work(writer, connection):
            calls = Calls(connection)
            writer.step(calls)
            working.wait()
            while True:
                writer.step(calls)

        def kill_one():
            working.wait()
            # Each has done a step; the one that is killed is somewhere in a later one.
            victim = writers[round_number % WRITERS]
            done = victim.acknowledged["folded"]
            wait_until("the victim has gone on", lambda: victim.acknowledged["folded"] >= done + 2)
            os.kill(connections[round_number % WRITERS].info.backend_pid, signal.SIGKILL)

        works = [lambda w=writer, c=connection: work(w, c) for writer, connection in zip(writers, connections, strict=True)]
        results = at_once([*works, kill_one])
        assert all(isinstance(result, psycopg.OperationalError) for result in results[:-1])
        assert results[-1] is None
        with reopened(cluster) as calls:
            for writer in writers:
                writer.check(calls)
