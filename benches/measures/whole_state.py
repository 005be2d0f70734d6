"""The whole state and its writes: all arms, turn by turn."""

from ..arms.by_hand import ByHand
from ..arms.ours import Ours, OursFolding
from ..arms.peer import DeltaPeer, Peer
from ..arms.sqlite import Sqlite
from ..results import Results, progress
from ..settings import SEED, Bench
from ..state import Chat
from ..timing import collect, rotated, timed, without_collector
from . import fold, reads
from .growth import DISK_WINDOWS, THREAD, WAL_WINDOWS, Growth

SECTION = "whole state"
TURNS = 1000
MIDDLE = 500

# The turns that count as turn 10, of several short threads.
EARLY = range(7, 14)


def measure(bench: Bench, results: Results) -> None:
    server, size = bench.server, bench.size
    ours = Ours.make(server, "ours", "ours")
    folding = OursFolding.make(server, "ours folding", "ours_folding")
    peer = Peer.make(server, "peer", "peer")
    peer_lz4 = Peer.make(server, "peer-lz4", "peer_lz4", compression="lz4")
    middle = range(MIDDLE - size.half_window, MIDDLE + size.half_window)

    progress(f"whole state, {len(EARLY)} turns around turn 10 of {size.short_threads} threads")
    short_threads([ours, peer, peer_lz4], size.short_threads, results)

    progress(f"whole state and its writes, {TURNS} turns in every arm")
    growth = Growth(results, SECTION, Chat(f"{SEED} whole"), writes=True)
    growth.add(ours, TURNS)
    growth.watch_wal(ours)
    growth.add(folding, TURNS)
    folding.begin(THREAD)
    growth.add(peer, TURNS)
    growth.add(peer_lz4, max(size.other_turns, middle.stop))
    growth.add(DeltaPeer.make(server, "peer DeltaChannel", "peer_delta"), size.other_turns)
    # These two store every state whole: half the turns show where it leads.
    growth.add(ByHand.make(server, "by hand, lz4", "by_hand"), size.other_turns // 2)
    growth.add(Sqlite("sqlite saver", bench.scratch / "bench.sqlite"), size.other_turns // 2)
    growth.read_in(middle)
    growth.at(MIDDLE, lambda _: reads.server_time(bench, results, ours))
    growth.run()

    # Before any vacuum: a thread must not need one to stay fast.
    progress("appends by writes and fold, at turn 10 and at turn 1,000")
    fold.measure(bench, results, folding, growth.chat)
    sizes = growth.finish()
    results.ratio("disk_all_peer", sizes["peer"], sizes["ours"])
    early, late = (growth.bytes_per_turn("ours", window) for window in DISK_WINDOWS)
    results.ratio("bytes_per_turn_growth", late, early)
    early, late = (growth.wal_per_put(window) for window in WAL_WINDOWS)
    results.ratio("wal_growth", late, early)
    middle_ratios(growth, middle, results)
    growth.draw()

    progress("reads of old versions")
    reads.old_versions(bench, results, ours, growth.ids)
    for arm, _ in growth.arms:
        arm.close()
    for name in ("ours", "ours_folding", "peer", "peer_lz4", "peer_delta", "by_hand"):
        server.drop_database(name)


def middle_ratios(growth: Growth, middle: range, results: Results) -> None:
    label = f"turn {MIDDLE}"
    puts = {arm.name: growth.put_times(arm.name, middle, label) for arm, _ in growth.arms}
    gets = {arm.name: growth.get_times(arm.name, middle, label) for arm, _ in growth.arms}
    put = {name: sorted(times)[len(times) // 2] for name, times in puts.items() if times}
    get = {name: sorted(times)[len(times) // 2] for name, times in gets.items() if times}
    results.ratio("put_500_peer", put["peer"], put["ours"])
    results.ratio("put_500_peer_lz4", put["peer-lz4"], put["ours"])
    results.ratio("get_500_peer_lz4", get["peer-lz4"], get["ours"])
    results.ratio("apply_500_peer_lz4", put["peer-lz4"], put["ours folding"])


def short_threads(arms: list[Ours | Peer], threads: int, results: Results) -> None:
    puts: dict[str, list[float]] = {arm.name: [] for arm in arms}
    gets: dict[str, list[float]] = {arm.name: [] for arm in arms}
    with without_collector():
        for at in range(threads):
            thread = f"short-{at}"
            for turn in Chat(f"{SEED} {thread}").turns(EARLY.stop - 1):
                for arm in rotated(arms, turn.number):
                    arm.put_writes(thread, turn)
                    put, get = timed(arm.put, thread, turn), timed(arm.get, thread)
                    if turn.number in EARLY:
                        puts[arm.name].append(put)
                        gets[arm.name].append(get)
            collect()
    medians = {name: results.times(SECTION, f"put turn 10 {name}", times).median for name, times in puts.items()}
    for name, times in gets.items():
        results.times(SECTION, f"get turn 10 {name}", times)
    results.ratio("put_10_peer_lz4", medians["peer-lz4"], medians["ours"])
