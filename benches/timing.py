"""Taking time."""

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

WARM_UP = 5


@dataclass(frozen=True)
class Summary:
    count: int
    median: float
    p95: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Summary":
        ordered = sorted(seconds)
        p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
        return cls(len(ordered), statistics.median(ordered), p95)

    def in_ms(self) -> dict[str, float]:
        return {"n": self.count, "median_ms": round(self.median * 1000, 4), "p95_ms": round(self.p95 * 1000, 4)}


def timed(call: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


@contextmanager
def without_collector() -> Iterator[None]:
    """Python's cycle collector takes up to 50 ms where a thousand messages are alive, whoever made them. It runs between the calls
    that are timed, when `collect` is called, and not in them."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def collect() -> None:
    gc.collect()


def rotated(items: list[Any], by: int) -> list[Any]:
    """The same in turn, but another one first: so that nobody always runs after the same neighbour."""
    at = by % len(items)
    return items[at:] + items[:at]


def interleaved(calls: Mapping[str, Callable[[int], Any]], times: int) -> dict[str, list[float]]:
    """Times each of the calls so many times, call by call in turn, so that the machine's noise hits all alike. Each is warmed up;
    it is told how often it was called before."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with without_collector():
        for at in range(WARM_UP + times):
            for name, call in rotated(list(calls.items()), at):
                taken = timed(call, at)
                if at >= WARM_UP:
                    seconds[name].append(taken)
            if at % 50 == 49:
                collect()
    return seconds
