#!/usr/bin/env python3
"""A worker that shares threads with others: each step of a thread is run by one of them.

    worker.py --uri URI THREAD [THREAD ...]

Before it runs the tasks of a step, a worker claims it: it puts a checkpoint with its name on it, under the fence that the latest is
still the one that it resumed from (`expected_latest`). Of several workers one gets through, the others get 40001 and look again.
A claim holds for a while; of a worker that died another takes the step over in the same way, from the claim.

The results are logged against the claim. A worker that was only slow, and has lost its claim meanwhile, logs against a checkpoint
that is no longer the latest: nobody folds that. Its own fold is refused, because it looks before it folds, in one snapshot.
"""

import argparse
import json
import os
import time

import psycopg
from psycopg.rows import namedtuple_row

REDUCERS = json.dumps({"done": "append"})

#: For how long a claim holds. Longer than any step takes; as long as a dead worker's step may lie.
CLAIM_SECONDS = 60


class Worker:
    def __init__(self, uri, name, run_task, claim_seconds=CLAIM_SECONDS):
        self.conn = psycopg.connect(uri, autocommit=True, row_factory=namedtuple_row)
        self.name = name
        self.run_task = run_task
        self.claim_seconds = claim_seconds

    def resume(self, thread):
        """Where the thread is; None once it has come to its end."""
        latest = self.conn.execute("SELECT * FROM ckpt_resume(%s)", [thread]).fetchone()
        return latest if latest.next else None

    def claim(self, thread, latest):
        """The id of the claim, or None where another worker has the step or was first."""
        state, free = self.conn.execute(
            """SELECT state, NOT state::jsonb ? 'claimed_until'
                             OR (state->>'claimed_until')::timestamptz <= now()
               FROM ckpt_state(%s, %s) AS state""",
            [thread, latest.checkpoint_id],
        ).fetchone()
        if not free:
            return None
        until = self.conn.execute("SELECT (now() + make_interval(secs => %s))::text", [self.claim_seconds]).fetchone()[0]
        claimed = {**state, "claimed_by": self.name, "claimed_until": until}
        try:
            return self.conn.execute(
                "SELECT ckpt_put(%s, %s, %s, next => %s, expected_latest => %s)",
                [thread, json.dumps(claimed), json.dumps({"claimed_by": self.name}), latest.next, latest.checkpoint_id],
            ).fetchone()[0]
        except psycopg.errors.SerializationFailure:
            return None

    def run(self, thread, claim, tasks):
        """Runs tasks and logs each result at once. What the worker before has logged against its own claim, if it died, runs again."""
        for task in tasks:
            result = self.run_task(thread, task)
            writes = json.dumps([["done", result]])
            self.conn.execute("SELECT ckpt_put_writes(%s, %s, %s, %s)", [thread, claim, task, writes])

    def fold(self, thread, claim, following):
        """Folds the step into the next checkpoint, unless the claim was lost meanwhile; says whether it did."""
        try:
            with self.conn.transaction():
                # In one snapshot: whoever puts a checkpoint between the look and the fold makes the fold fail.
                self.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                latest = self.conn.execute("SELECT checkpoint_id FROM ckpt_latest(%s)", [thread]).fetchone()
                if latest.checkpoint_id != claim:
                    return False
                # The claim ends with the step.
                self.conn.execute(
                    "SELECT ckpt_put_writes(%s, %s, 'worker', %s)",
                    [thread, claim, json.dumps([["claimed_until", "-infinity"]])],
                )
                self.conn.execute(
                    "SELECT ckpt_apply_writes(%s, checkpoint_id => %s, reducers => %s, next => %s)",
                    [thread, claim, REDUCERS, following],
                )
            return True
        except psycopg.errors.SerializationFailure:
            return False

    def step(self, thread, following):
        """One step of a thread, if it is this worker that gets it. `following` says what comes after which tasks."""
        latest = self.resume(thread)
        if latest is None:
            return False
        claim = self.claim(thread, latest)
        if claim is not None:
            self.run(thread, claim, latest.next)
            self.fold(thread, claim, following(latest.next))
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", required=True)
    parser.add_argument("threads", nargs="+", metavar="THREAD")
    arguments = parser.parse_args()

    def run_task(thread, task):
        print(f"{thread}: {task}")
        return task

    worker = Worker(arguments.uri, f"worker {os.getpid()}", run_task)
    open_threads = set(arguments.threads)
    while open_threads:
        # A thread that another worker has claimed is looked at again in the next round.
        open_threads = {thread for thread in open_threads if worker.step(thread, lambda tasks: [])}
        time.sleep(0.1)


if __name__ == "__main__":
    main()
