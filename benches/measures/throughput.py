"""Puts a second of eight clients at once, at turn 100: each is a process with a thread of its own.

To stay at turn 100, a client puts turns 96 to 105 and then begins another branch from turn 95, with other words. The turns are
made before the clock runs; what a client does to save one, serialising included, is timed."""

import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from ..arms.ours import Ours
from ..arms.peer import Peer
from ..results import Results, progress
from ..settings import SEED, Bench
from ..state import Chat, Turn
from ..timing import without_collector

SECTION = "throughput"
CLIENTS = 8
BASE_TURN = 95
BRANCH = 10
# More than any client has put in a second; one that puts all it has ends early, and counts for as long as it worked.
PUTS_A_SECOND = 120

KINDS: dict[str, type[Ours] | type[Peer]] = {"ours": Ours, "peer": Peer, "peer-lz4": Peer}


def measure(bench: Bench, results: Results) -> None:
    size = bench.size
    progress(f"{CLIENTS} clients at turn 100, {size.throughput_rounds} rounds of {size.throughput_seconds:g} s for each arm")
    for name, kind in KINDS.items():
        options = {"compression": "lz4"} if name == "peer-lz4" else {}
        kind.make(bench.server, name, database_of(name), **options).close()
    uris = {name: bench.server.uri_of(database_of(name)) for name in KINDS}
    rates: dict[str, list[float]] = {name: [] for name in KINDS}
    with Clients(uris) as clients:
        clients.ask("load")
        for at in range(size.throughput_rounds):
            clients.ask("prepare", at, int(PUTS_A_SECOND * size.throughput_seconds))
            for name in KINDS:
                rates[name].append(sum(clients.ask("run", name, size.throughput_seconds)))
    for name, values in rates.items():
        results.figure(SECTION, f"puts a second, {name}", [round(value, 1) for value in values])
        bench.server.drop_database(database_of(name))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    results.ratio("throughput_peer", medians["ours"], medians["peer"])
    results.ratio("throughput_peer_lz4", medians["ours"], medians["peer-lz4"])


def database_of(name: str) -> str:
    return f"throughput_{name.replace('-', '_')}"


class Clients:
    """The processes, and the pipes to them."""

    def __init__(self, uris: dict[str, str]) -> None:
        # Not by fork: a child must not share the connections of its parent.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.pipes: list[Connection] = []
        self.processes = []
        for at in range(CLIENTS):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, at, uris), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)
            process.terminate()

    def ask(self, *request: Any) -> list[Any]:
        """Sends a request to all and returns their answers."""
        for pipe in self.pipes:
            pipe.send(request)
        answers = [pipe.recv() for pipe in self.pipes]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def serve(pipe: Connection, number: int, uris: dict[str, str]) -> None:
    client = Client(number, uris)
    while True:
        try:
            method, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = getattr(client, method)(*arguments)
        except Exception as error:  # the other side raises it
            answer = RuntimeError(f"client {number} failed to {method}: {error!r}")
        pipe.send(answer)


class Client:
    def __init__(self, number: int, uris: dict[str, str]) -> None:
        self.thread = f"client-{number}"
        self.chat = Chat(f"{SEED} {self.thread}")
        self.arms = {name: KINDS[name](name, uri) for name, uri in uris.items()}
        self.turns: list[Turn] = []

    def load(self) -> None:
        for turn in self.chat.turns(BASE_TURN):
            for arm in self.arms.values():
                arm.put(self.thread, turn)

    def prepare(self, at: int, count: int) -> None:
        self.turns = []
        for branch in range(count // BRANCH):
            age = at * count + branch + 1
            self.turns += self.chat.branch(f"{SEED} {self.thread} {age}", age).turns(BRANCH)

    def run(self, name: str, seconds: float) -> float:
        """Puts a second."""
        arm = self.arms[name]
        with without_collector():
            start = time.perf_counter()
            for done, turn in enumerate(self.turns, 1):
                arm.put(self.thread, turn)
                if time.perf_counter() - start >= seconds:
                    break
            return done / (time.perf_counter() - start)
