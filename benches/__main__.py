"""Runs all measures on the throwaway server that `tools/bench.sh` has started. Ends with 0 also where a ratio is short of its
bound: that is a result."""

import os
import tempfile
import time
from pathlib import Path

from . import picture, report
from .measures import breadth, depth, floors, messages_only, throughput, whole_state, window
from .results import Results, progress
from .server import Server
from .settings import FULL, SEED, SMALL, Bench

MEASURES = (whole_state, messages_only, depth, floors, window, throughput, breadth)


def main() -> None:
    began = time.time()
    size = SMALL if os.environ.get("SMALL", "0") not in ("", "0") else FULL
    output = Path(os.environ["CKPT_BENCH_OUTPUT"])
    server = Server(os.environ["CKPT_TEST_URI"], os.environ["CKPT_PG_BIN"])
    about = report.machine(server.describe())
    results = Results()
    # The file of the SQLite arm is on the disk of the clone, not on a /tmp that may be memory.
    with tempfile.TemporaryDirectory(dir=output) as scratch:
        bench = Bench(server, size, Path(scratch))
        for measure in chosen():
            measure.measure(bench, results)
    run = {"seed": SEED, "small": size.small, "began": began, "seconds": round(time.time() - began, 1)}
    report.write_json(results, about, run, output / "results.json")
    if results.curves:
        picture.draw(results, output / "bench.svg")
    print(report.figures_table(results))
    print(report.ratios_table(results))
    progress(f"{run['seconds']:.0f} s; {output / 'results.json'}, {output / 'bench.svg'}")


def chosen() -> list:
    """All measures, or those that ARGS names: `make bench ARGS='depth floors'`."""
    names = os.environ.get("ARGS", "").split()
    by_name = {measure.__name__.rsplit(".", 1)[1]: measure for measure in MEASURES}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise SystemExit(f"error: no such measure: {', '.join(unknown)}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names] if names else list(MEASURES)


if __name__ == "__main__":
    main()
