"""Recorded conversations: those beside the repository, where they are; else the samples of the example."""

import json
import os
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "examples" / "resume" / "samples.jsonl"


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


SHORT = read(SAMPLES)
SHARED = os.environ["CKPT_SHARED"]
CONVERSATIONS = read(Path(SHARED) / "airline_trajectories.jsonl") if SHARED else SHORT
