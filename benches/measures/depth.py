"""What depth costs: the latest checkpoint of a thread with many, and a list by metadata over many threads."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from ..arms.ours import Ours
from ..arms.peer import Peer, config_of
from ..results import Results, progress
from ..settings import SEED, Bench
from ..state import Chat, Turn, as_json
from ..timing import interleaved

SECTION = "depth"
# The state does not grow: only the depth may make the difference.
WINDOW = 20
SHALLOW, DEEP = 10, 5000
THREADS, CHECKPOINTS = 200, 50
STEP = 25
BATCH = 50

PUT = "SELECT ckpt_put(%s, %s, %s, checkpoint_id => %s)"
LATEST = "SELECT * FROM ckpt_latest(%s)"
LIST = "SELECT * FROM ckpt_list(filter => %s)"


def measure(bench: Bench, results: Results) -> None:
    latest(bench, results)
    listing(bench, results)


def chat_of(seed: str) -> Chat:
    return Chat(f"{SEED} depth {seed}", documents=False, window=WINDOW)


def batches(chat: Chat, count: int) -> Iterator[Iterator[Turn]]:
    """The turns in bundles that are loaded in a transaction each: no time is taken there."""
    for first in range(0, count, BATCH):
        yield chat.turns(min(BATCH, count - first))


def put_json(ours: Ours, thread: str, turn: Turn) -> None:
    state = turn.values | {"messages": as_json(turn.values["messages"])}
    ours.connection.execute(PUT, (thread, json.dumps(state), json.dumps(turn.metadata), turn.checkpoint_id))


def latest(bench: Bench, results: Results) -> None:
    progress(f"the latest of {DEEP:,} checkpoints and of {SHALLOW}")
    ours = Ours.make(bench.server, "ours", "ours_depth")
    peer = Peer.make(bench.server, "peer", "peer_depth")
    for thread, count in (("shallow", SHALLOW), ("deep", DEEP)):
        for turns in batches(chat_of(thread), count):
            with ours.connection.transaction(), peer.connection.transaction():
                for turn in turns:
                    put_json(ours, thread, turn)
                    peer.put(thread, turn)
    ours.tidy()
    peer.tidy()

    def ours_latest(thread: str) -> None:
        row = ours.connection.execute(LATEST, (thread,)).fetchone()
        assert row

    calls: dict[str, Callable[[int], Any]] = {
        "ckpt_latest, 10": lambda _: ours_latest("shallow"),
        "ckpt_latest, 5,000": lambda _: ours_latest("deep"),
        "peer, 10": lambda _: peer.get("shallow"),
        "peer, 5,000": lambda _: peer.get("deep"),
    }
    times = interleaved(calls, bench.size.reads)
    medians = {name: results.times(SECTION, name, seconds).median for name, seconds in times.items()}
    results.ratio("latest_growth", medians["ckpt_latest, 5,000"], medians["ckpt_latest, 10"])
    results.ratio("latest_5000_peer", medians["peer, 5,000"], medians["ckpt_latest, 5,000"])
    done(bench, ours, peer)


def listing(bench: Bench, results: Results) -> None:
    """The peer's list cannot but load every value of every row; `ckpt_list` shows the small ones and the sizes of the large ones.
    What it costs to load all values with ours too is a figure beside it: there Python's decoding, the same for both, is the most."""
    progress(f"list by metadata over {THREADS * CHECKPOINTS:,} checkpoints")
    ours = Ours.make(bench.server, "ours", "ours_list")
    peer = Peer.make(bench.server, "peer", "peer_list")
    for at in range(THREADS):
        with ours.connection.transaction(), peer.connection.transaction():
            for turn in chat_of(f"list {at}").turns(CHECKPOINTS):
                ours.put(f"thread-{at}", turn)
                peer.put(f"thread-{at}", turn)
    ours.tidy()
    peer.tidy()
    by_step = {"step": STEP}

    def of_peer(_: int) -> int:
        return len(list(peer.saver.list(None, filter=by_step)))

    def with_values(_: int) -> int:
        return len(ours.list_by(by_step))

    def without_values(_: int) -> int:
        return len(ours.connection.execute(LIST, (json.dumps(by_step),)).fetchall())

    calls = {"ckpt_list": without_values, "list with all values, ours": with_values, "list with all values, peer": of_peer}
    rows = {name: call(0) for name, call in calls.items()}
    if set(rows.values()) != {THREADS}:
        raise RuntimeError(f"a list found another number of rows than {THREADS}: {rows}")
    times = interleaved(calls, max(10, bench.size.reads // 10))
    medians = {name: results.times(SECTION, name, seconds).median for name, seconds in times.items()}
    results.ratio("list_filter_peer", medians["list with all values, peer"], medians["ckpt_list"])
    done(bench, ours, peer)


def done(bench: Bench, *arms: Ours | Peer) -> None:
    for arm in arms:
        name = arm.connection.info.dbname
        arm.close()
        bench.server.drop_database(name)
