"""How much is measured: everything in about ten minutes, or the same ratios from fewer samples in about two."""

from dataclasses import dataclass
from pathlib import Path

from .server import Server

SEED = "checkpointer"


@dataclass(frozen=True)
class Size:
    """The depths that the ratios name are the same in both sizes."""

    small: bool
    # Around turn 500: so many turns before and after it are its samples.
    half_window: int
    # How far the arms go that no ratio at turn 1,000 needs.
    other_turns: int
    short_threads: int
    reads: int
    rounds: int
    round_seconds: int
    wide_threads: int
    throughput_rounds: int
    throughput_seconds: float


FULL = Size(
    small=False,
    half_window=40,
    other_turns=1000,
    short_threads=15,
    reads=200,
    rounds=12,
    round_seconds=2,
    wide_threads=100_000,
    throughput_rounds=4,
    throughput_seconds=4,
)
SMALL = Size(
    small=True,
    half_window=15,
    other_turns=200,
    short_threads=6,
    reads=60,
    rounds=6,
    round_seconds=1,
    wide_threads=10_000,
    throughput_rounds=2,
    throughput_seconds=2,
)


@dataclass(frozen=True)
class Bench:
    """What every measure works with."""

    server: Server
    size: Size
    scratch: Path
