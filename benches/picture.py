"""The picture of a run: time of a put and of a read, and bytes on disk, against the number of turns."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  # after the choice of the renderer

from .results import Results  # noqa: E402

PANELS = {
    "put": "put of the whole state, ms",
    "get": "read of the whole state, ms",
    "disk": "on disk, state and writes, MB",
}


def draw(results: Results, file: Path) -> None:
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(15, 5))
    for axis, (curve, title) in zip(axes, PANELS.items()):
        for arm, points in results.curves[curve].items():
            turns, values = zip(*points)
            style = {"linewidth": 2.5} if arm.startswith("ours") else {"linewidth": 1.2}
            axis.plot(turns, values, label=arm, **style)
        axis.set_title(title)
        axis.set_xlabel("turns")
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels))
    figure.savefig(file)
    pyplot.close(figure)
