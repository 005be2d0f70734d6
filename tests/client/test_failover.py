"""The primary dies under load and its synchronous standby takes over: all that was acknowledged is there, nothing is half done,
and clients that call again what was not answered go on as if nothing had been."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

import psycopg
import pytest

from support import DEADLINE, Calls, connect

CLIENTS = 8
LARGE = "x" * 3000
SHARED = "shared by all clients"
REDUCERS = {"reducers": '{"list": "append", "count": "sum"}'}


class Abandoned(Exception):
    """The test has failed elsewhere."""


class Place:
    """Where the primary is. Clients that lost it wait here for the next one; all that they do is told to who waits for it."""

    def __init__(self, cluster):
        self.changed = threading.Condition()
        self.number, self.uri = 0, cluster.uri()
        self.waiting = 0
        self.ends = self.is_abandoned = False
        self.running = []

    def set(self, **changes):
        with self.changed:
            vars(self).update(changes)
            self.changed.notify_all()

    def move(self, cluster):
        self.set(number=self.number + 1, uri=cluster.uri())

    def wait_for(self, what, holds):
        """Waits until it holds, or a client has failed."""
        failed = lambda: any(client.done() and client.exception() for client in self.running)
        with self.changed:
            assert self.changed.wait_for(lambda: holds() or failed(), DEADLINE), f"still not so after {DEADLINE} s: {what}"
        if failed():
            self.results()

    def after(self, number):
        """Waits for another primary than that one."""
        with self.changed:
            self.set(waiting=self.waiting + 1)
            assert self.changed.wait_for(lambda: self.number > number or self.is_abandoned, DEADLINE)
            self.waiting -= 1
            if self.is_abandoned:
                raise Abandoned
            return self.number

    def results(self):
        return [client.result(DEADLINE) for client in as_completed(self.running)]

    @contextmanager
    def clients(self, clients, clusters):
        """Clients run, and have ended afterwards, also where the test fails."""
        with ThreadPoolExecutor(len(clients)) as pool:
            try:
                self.running = [pool.submit(client.run, self) for client in clients]
                for client in self.running:
                    client.add_done_callback(lambda _: self.set())
                yield
                self.ends = True
                self.results()
            except BaseException:
                self.set(is_abandoned=True)
                for cluster in clusters:
                    cluster.remove()
                raise


class Client:
    """Makes numbered calls, one after the other, each again until it is answered. Five are a step: a put, the writes of two
    tasks, their fold, and two messages to a log that all clients share."""

    def __init__(self, number):
        self.thread = f"client {number}"
        self.answered = 0
        self.under_way = None
        self.bases = ["start"]
        self.said = {}

    def begin(self, calls):
        calls.value("ckpt_put", self.thread, '{"list": [], "count": 0}', checkpoint_id="start", next=["a", "b"])

    def put(self, calls, step):
        made = calls.value("ckpt_put", self.thread, json.dumps(self.state_put(step)), checkpoint_ns="put", checkpoint_id=f"{step:05}")
        assert made == f"{step:05}"

    def write_a(self, calls, step):
        assert calls.value("ckpt_put_writes", self.thread, self.bases[step], "a", json.dumps(self.writes("a", step))) in (0, 1)

    def write_b(self, calls, step):
        assert calls.value("ckpt_put_writes", self.thread, self.bases[step], "b", json.dumps(self.writes("b", step))) in (0, 3)

    def fold(self, calls, step):
        made = calls.value("ckpt_apply_writes", self.thread, checkpoint_id=self.bases[step], next=["a", "b"], **REDUCERS)
        self.bases.append(made)

    def say(self, calls, step):
        turn = f"{self.thread}/{step}"
        messages = [{"role": role, "content": f"{role} {turn}"} for role in ("user", "assistant")]
        rows = calls.rows("ckpt_append", SHARED, json.dumps(messages), turn)
        self.said[turn] = [(row.seq, row.msg_id) for row in rows]

    CALLS = (put, write_a, write_b, fold, say)

    def state_put(self, step):
        return {"step": step, "large": f"{step}{LARGE}"}

    def writes(self, task, step):
        written = [["list", f"{step}{task}"]]
        return written if task == "a" else [*written, ["count", 1], ["large", f"{step}{LARGE}"]]

    def state_folded(self, folds):
        state = {"list": [f"{step}{task}" for step in range(folds) for task in "ab"], "count": folds}
        return state | ({"large": f"{folds - 1}{LARGE}"} if folds else {})

    def run(self, place):
        connection, number = None, 0
        while not (place.ends and self.answered % len(self.CALLS) == 0):
            step, at = divmod(self.answered, len(self.CALLS))
            self.under_way = self.CALLS[at]
            place.set()
            try:
                connection = connection or connect(place.uri)
                self.CALLS[at](self, Calls(connection), step)
            except psycopg.OperationalError:
                connection, number = None, place.after(number)
                continue
            self.answered += 1
            place.set()
        connection.close()

    def made_by(self, number):
        """What is there after so many calls: puts, folds, finished tasks of the latest fold, turns said."""
        step, at = divmod(number, len(self.CALLS))
        finished = {task: self.writes(task, step) for task in {2: "a", 3: "ab"}.get(at, "")}
        return step + (at > 0), step + (at > 3), finished, step

    def check(self, calls, said):
        """What is there is just what the answered calls make, or these and the one that was under way."""
        puts = [row.checkpoint_id for row in calls.rows("ckpt_history", self.thread, checkpoint_ns="put")][::-1]
        assert puts == [f"{step:05}" for step in range(len(puts))]
        for step, made in enumerate(puts):
            assert json.loads(calls.value("ckpt_state", self.thread, made, "put")) == self.state_put(step)
        bases = [row.checkpoint_id for row in calls.rows("ckpt_history", self.thread)][::-1]
        assert bases[: len(self.bases)] == self.bases
        for folds, base in enumerate(bases):
            assert json.loads(calls.value("ckpt_state", self.thread, base)) == self.state_folded(folds)
        turns = [turn for turn in said if turn.startswith(f"{self.thread}/")]
        assert turns == [f"{self.thread}/{step}" for step in range(len(turns))]
        assert {turn: said[turn] for turn in self.said} == self.said
        finished = json.loads(calls.row("ckpt_resume", self.thread).finished)
        found = len(puts), len(bases) - 1, finished, len(turns)
        assert found in (self.made_by(self.answered), self.made_by(self.answered + 1))
        return found


def said(calls):
    """The shared log: its seqs have no gap, and each turn is there once and whole."""
    rows = calls.rows("ckpt_messages", SHARED)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    turns = {}
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first.turn == second.turn and first.turn not in turns
        assert (first.content, second.content) == (f"user {first.turn}", f"assistant {first.turn}")
        turns[first.turn] = [(first.seq, first.msg_id), (second.seq, second.msg_id)]
    return turns


@pytest.fixture
def primary(make_cluster):
    # It answers no commit that its standby does not have; so do those that are copied from it.
    primary = make_cluster().init(synchronous_standby_names="*").start()
    with connect(primary.uri()) as connection:
        # There is no standby yet.
        connection.execute("SET synchronous_commit = local")
        connection.execute("CREATE EXTENSION checkpointer")
    return primary


def test_a_standby_that_takes_over_has_all_that_was_acknowledged(primary, make_cluster):
    clients = [Client(number) for number in range(CLIENTS)]
    clusters = [primary, make_cluster().copy(primary).start()]
    place = Place(primary)

    def wait_for_answers(number, under_way=None):
        answered = lambda: sum(client.answered for client in clients)
        enough = answered() + number
        is_under_way = lambda: under_way is None or any(client.under_way == under_way for client in clients)
        place.wait_for(f"{number} more answers", lambda: answered() >= enough and is_under_way())

    def check(calls):
        turns = said(calls)
        return [client.check(calls, turns) for client in clients]

    def take_over():
        place.wait_for("all clients have lost the primary", lambda: place.waiting == CLIENTS)
        standby = clusters[-1]
        standby.promote()
        with connect(standby.uri()) as connection:
            check(Calls(connection))
        place.move(standby)

    with connect(primary.uri()) as connection:
        for client in clients:
            client.begin(Calls(connection))
    with place.clients(clients, clusters):
        wait_for_answers(150, under_way=Client.fold)
        clusters[0].stop("immediate")
        take_over()
        # The clients are at it, but get no answer until this one is there.
        clusters.append(make_cluster().copy(clusters[1]).start())
        wait_for_answers(350, under_way=Client.say)
        clusters[1].kill()
        take_over()
        with connect(clusters[2].uri()) as connection:
            # Nobody is left who could take over from this one.
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("SELECT pg_reload_conf()")
        wait_for_answers(100)
    with connect(clusters[2].uri()) as connection:
        assert check(Calls(connection)) == [client.made_by(client.answered) for client in clients]
