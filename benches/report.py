"""The end of a run: the table, and the file of results."""

import json
import os
import platform
from pathlib import Path
from typing import Any

from .bounds import BOUNDS
from .results import Results


def machine(server: dict[str, str]) -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "server": server,
    }


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def write_json(results: Results, about: dict[str, Any], run: dict[str, Any], file: Path) -> None:
    curves = {kind: dict(arms) for kind, arms in results.curves.items()}
    runs = run | {"figures": dict(results.figures), "curves": curves}
    ratios = {name: round(value, 4) for name, value in results.ratios.items()}
    content = {"machine": about, "runs": runs, "ratios": ratios}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def figures_table(results: Results) -> str:
    lines = []
    for section, figures in results.figures.items():
        lines.append(f"\n{section}")
        for name, value in figures.items():
            lines.append(f"  {name:<58} {shown(value)}")
    return "\n".join(lines)


def shown(value: Any) -> str:
    if isinstance(value, dict) and "median_ms" in value:
        return f"median {value['median_ms']:9.3f} ms   p95 {value['p95_ms']:9.3f} ms   n {value['n']}"
    if isinstance(value, dict) and "bytes" in value:
        return f"{value['bytes'] / 1e6:10.2f} MB after {value['turns']} turns"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def ratios_table(results: Results) -> str:
    lines = [f"\n{'ratio':<22} {'value':>8}  {'bound':>8}        what"]
    for name, bound in BOUNDS.items():
        if name not in results.ratios:
            continue
        ratio = results.ratios[name]
        verdict = "ok" if bound.holds(ratio) else "short"
        lines.append(f"{name:<22} {ratio:8.2f}  {bound!s:>8}  {verdict:<5} {bound.what}")
    return "\n".join(lines)
