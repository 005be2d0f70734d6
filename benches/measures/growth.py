"""A chat of a thousand turns in every arm: disk, WAL, and the time of puts and reads as it grows."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ..arms.base import Arm
from ..results import Results
from ..arms.ours import Ours
from ..server import Wal
from ..state import Chat, Turn
from ..timing import collect, rotated, timed, without_collector

THREAD = "chat"

# Every so many turns, a point of the curves.
STEP = 25

# The windows of turns over which bytes per turn are taken, around turn 100 and up to turn 1,000.
DISK_WINDOWS = ((50, 150), (900, 1000))
WAL_WINDOWS = ((75, 125), (950, 1000))


class Growth:
    """Puts the same turns through all arms, each turn into one arm after the other."""

    def __init__(self, results: Results, section: str, chat: Chat, writes: bool) -> None:
        self.results = results
        self.section = section
        self.chat = chat
        self.writes = writes
        self.arms: list[tuple[Arm, int]] = []
        self.dense: set[int] = set()
        self.events: dict[int, Callable[[Turn], None]] = {}
        self.puts: dict[str, dict[int, float]] = defaultdict(dict)
        self.gets: dict[str, dict[int, float]] = defaultdict(dict)
        self.wal: tuple[Ours, Wal] | None = None
        # By turn: bytes of records, and of whole pages.
        self.wal_of_puts: dict[int, tuple[int, int]] = {}
        self.sizes: dict[str, dict[int, int]] = defaultdict(dict)
        self.ids: list[str] = []

    def add(self, arm: Arm, turns: int) -> None:
        self.arms.append((arm, turns))

    def read_in(self, turns: Iterable[int]) -> None:
        """In these turns every arm reads the whole state."""
        self.dense.update(turns)

    def watch_wal(self, arm: Ours) -> None:
        self.wal = (arm, Wal(arm.connection))

    def at(self, turn: int, event: Callable[[Turn], None]) -> None:
        """`event` happens after this turn."""
        self.events[turn] = event

    def run(self) -> None:
        turns = max(until for _, until in self.arms)
        with without_collector():
            for turn in self.chat.turns(turns):
                self.ids.append(turn.checkpoint_id)
                arms = [arm for arm, until in self.arms if turn.number <= until]
                for arm in rotated(arms, turn.number):
                    self.one_turn(arm, turn)
                self.after(turn)

    def one_turn(self, arm: Arm, turn: Turn) -> None:
        if self.writes:
            arm.put_writes(THREAD, turn)
        wal = self.wal[1] if self.wal and arm is self.wal[0] else None
        watched = any(start < turn.number <= end for start, end in WAL_WINDOWS)
        before = wal.position() if wal and watched else None
        self.puts[arm.name][turn.number] = timed(arm.put, THREAD, turn)
        if wal and before:
            self.wal_of_puts[turn.number] = wal.since(before)
        if turn.number % STEP == 0 or turn.number in self.dense:
            self.gets[arm.name][turn.number] = timed(arm.get, THREAD)
        if turn.number % STEP == 0:
            self.sizes[arm.name][turn.number] = arm.disk()

    def after(self, turn: Turn) -> None:
        if turn.number % STEP == 0 or turn.number in self.dense and turn.number % 5 == 0:
            collect()
        if turn.number in self.events:
            self.events[turn.number](turn)

    def finish(self) -> dict[str, int]:
        """Vacuums, checks what the arms give back, and returns their bytes on disk."""
        sizes = {}
        for arm, until in self.arms:
            arm.tidy()
            sizes[arm.name] = arm.disk()
            self.results.figure(self.section, f"disk {arm.name}", {"turns": until, "bytes": sizes[arm.name]})
            if until == self.chat.number:
                check(arm, self.chat)
        return sizes

    def put_times(self, arm: str, turns: Iterable[int], label: str) -> list[float]:
        return self.window("put", self.puts[arm], arm, turns, label)

    def get_times(self, arm: str, turns: Iterable[int], label: str) -> list[float]:
        return self.window("get", self.gets[arm], arm, turns, label)

    def window(self, what: str, times: dict[int, float], arm: str, turns: Iterable[int], label: str) -> list[float]:
        seconds = [times[turn] for turn in turns if turn in times]
        if seconds:
            self.results.times(self.section, f"{what} {label} {arm}", seconds)
        return seconds

    def wal_per_put(self, window: tuple[int, int]) -> float:
        """The median, without whole pages: the server writes one at the first change of a page after each of its checkpoints, and it
        is the WAL of the other arms that makes it take those."""
        start, end = window
        records, pages = zip(*(self.wal_of_puts[turn] for turn in range(start + 1, end + 1)), strict=True)
        turns = f"turns {start + 1} to {end}"
        self.results.figure(self.section, f"wal per put, {turns}: median", statistics.median(records))
        self.results.figure(self.section, f"wal per put, {turns}: whole pages, mean", statistics.mean(pages))
        return statistics.median(records)

    def bytes_per_turn(self, arm: str, window: tuple[int, int]) -> float:
        start, end = window
        grown = (self.sizes[arm][end] - self.sizes[arm][start]) / (end - start)
        self.results.figure(self.section, f"bytes per turn, turns {start + 1} to {end}, {arm}", grown)
        return grown

    def draw(self) -> None:
        """The points of the picture: of puts, the median of the turns around."""
        for arm, until in self.arms:
            for turn in range(STEP, until + 1, STEP):
                near = sorted(self.puts[arm.name][t] for t in range(turn - STEP + 1, turn + 1))
                self.results.point("put", arm.name, turn, near[len(near) // 2] * 1000)
                self.results.point("disk", arm.name, turn, self.sizes[arm.name][turn] / 1e6)
                if turn in self.gets[arm.name]:
                    self.results.point("get", arm.name, turn, self.gets[arm.name][turn] * 1000)


def check(arm: Arm, chat: Chat) -> None:
    """An arm that lost something must not win."""
    found = dict(arm.get(THREAD))
    kept = arm.keeps or tuple(chat.values)
    wrong = [name for name in kept if not same(found.get(name), chat.values[name])]
    if wrong:
        raise RuntimeError(f"{arm.name} gave back another state than it was given: {', '.join(wrong)}")


def same(found: Any, given: Any) -> bool:
    if isinstance(given, list) and isinstance(found, list) and found and isinstance(found[0], dict):
        # A client that speaks JSON has no message classes; and it has gone on since.
        return [item["id"] for item in found[: len(given)]] == [item.id for item in given]
    return found == given
