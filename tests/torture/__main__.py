"""python -m torture --kills 1000 --seed 7: on a cluster of its own; tools/throwaway.sh says what must be in the environment."""

import argparse
import os
import random
import sys

from support import Cluster, Programs
from torture.chaos import Chaos
from torture.checker import check
from torture.record import Records

SHOWN = 20


def say(line):
    print(line, flush=True)


def torture(cluster, kills, seed):
    """What was found, and how many calls were made."""
    with Chaos(cluster, kills, seed, say) as chaos:
        chaos.run()
        records = Records.below(chaos.settings["records"])
        say(f"torture: {records.calls()} calls; checking")
        checker = check(cluster, records)
        for what, count in sorted(checker.counted.items()):
            say(f"torture: {count} {what}")
        return chaos.findings + checker.findings, records.calls()


def main():
    parser = argparse.ArgumentParser(prog="torture")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.randrange(1 << 31) if arguments.seed is None else arguments.seed
    say(f"torture: {arguments.kills} kills, seed {seed}")
    cluster = Cluster(Programs(os.environ["CKPT_PG_BIN"], os.environ["CKPT_RUN_AS"], os.environ["CKPT_SCRATCH"]))
    try:
        findings, calls = torture(cluster.init(), arguments.kills, seed)
    finally:
        cluster.remove()
    for finding in findings[:SHOWN]:
        say(f"violation: {finding}")
    say(f"torture: {calls} calls, {arguments.kills} kills, {len(findings)} violations")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
