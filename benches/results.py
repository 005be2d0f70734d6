"""What was measured: the ratios, the figures behind them, and the curves of the picture."""

import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from .timing import Summary


class Results:
    def __init__(self) -> None:
        self.ratios: dict[str, float] = {}
        self.figures: dict[str, dict[str, Any]] = defaultdict(dict)
        # Kind of curve -> arm -> points.
        self.curves: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))

    def ratio(self, name: str, numerator: float, denominator: float) -> None:
        self.ratios[name] = numerator / denominator

    def figure(self, section: str, name: str, value: Any) -> None:
        self.figures[section][name] = value

    def times(self, section: str, name: str, seconds: Iterable[float]) -> Summary:
        summary = Summary.of(seconds)
        self.figure(section, name, summary.in_ms())
        return summary

    def point(self, curve: str, arm: str, turn: int, value: float) -> None:
        self.curves[curve][arm].append((turn, value))


def progress(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)
