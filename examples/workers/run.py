#!/usr/bin/env python3
"""Two workers resume the same threads at once. Without the fence both run each task; with it, one of them does.

    run.py --uri URI

Exit status 0 if every check held, 1 if one did not.
"""

import argparse
import collections
import sys
import threading

import psycopg

from worker import Worker

STEPS = {("search", "weather"): ["answer"], ("answer",): ["check"], ("check",): []}
TASKS = sorted(task for tasks in STEPS for task in tasks)
THREADS = 12


def following(tasks):
    return STEPS[tuple(tasks)]


class Journal:
    """Which worker ran what."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ran = []

    def of(self, worker):
        def run_task(thread, task):
            with self.lock:
                self.ran.append((thread, task, worker))
            return f"{task} by {worker}"

        return run_task

    def counts(self, thread):
        return collections.Counter(task for of, task, _ in self.ran if of == thread)


def begin(connection, name):
    thread = f"workers-demo/{name}"
    connection.execute("SELECT ckpt_delete_thread(%s)", [thread])
    connection.execute("SELECT ckpt_put(%s, %s, next => %s)", [thread, '{"done": []}', list(next(iter(STEPS)))])
    return thread


def together(workers, work):
    """Runs `work(worker, barrier)` in a thread for each worker."""
    barrier = threading.Barrier(len(workers), timeout=60)
    running = [threading.Thread(target=work, args=(worker, barrier)) for worker in workers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def without_a_fence(uri, connection):
    journal = Journal()
    thread = begin(connection, "unfenced")
    workers = [Worker(uri, name, journal.of(name)) for name in ("ann", "bob")]

    def work(worker, barrier):
        latest = worker.resume(thread)
        barrier.wait()
        for task in latest.todo:
            worker.run_task(thread, task)

    together(workers, work)
    return journal.counts(thread)


def with_the_fence(uri, connection):
    journal = Journal()
    threads = [begin(connection, number) for number in range(THREADS)]
    workers = [Worker(uri, name, journal.of(name)) for name in ("ann", "bob")]

    def work(worker, barrier):
        for thread in threads:
            # Both resume the step before either of them claims it.
            while True:
                latest = worker.resume(thread)
                barrier.wait()
                if latest is None:
                    break
                claim = worker.claim(thread, latest)
                if claim is not None:
                    worker.run(thread, claim, latest.next)
                    assert worker.fold(thread, claim, following(latest.next))
                barrier.wait()

    together(workers, work)
    return journal, threads


def taken_over(uri, connection):
    """A worker dies in its step, or seems to; another takes the step over; the first comes back late."""
    journal = Journal()
    thread = begin(connection, "taken over")
    slow = Worker(uri, "ann", journal.of("ann"), claim_seconds=0)
    quick = Worker(uri, "bob", journal.of("bob"))
    latest = slow.resume(thread)
    lost = slow.claim(thread, latest)
    slow.run(thread, lost, latest.next[:1])
    while quick.step(thread, following):
        pass
    slow.run(thread, lost, latest.next[1:])
    return thread, slow.fold(thread, lost, following(latest.next))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", required=True)
    uri = parser.parse_args().uri
    failed = []

    def check(what, holds):
        print(f"  {'ok' if holds else 'NOT SO':6} {what}")
        failed.extend([] if holds else [what])

    def done(thread):
        [[state]] = connection.execute("SELECT ckpt_state(%s)", [thread]).fetchall()
        return state["done"]

    with psycopg.connect(uri, autocommit=True) as connection:
        print("Two workers that only resume:")
        counts = without_a_fence(uri, connection)
        check("both run each task", set(counts.values()) == {2})

        print(f"Two workers that claim each step under the fence, {THREADS} threads of {len(STEPS)} steps:")
        journal, threads = with_the_fence(uri, connection)
        check("each task is run once", all(journal.counts(thread) == collections.Counter(TASKS) for thread in threads))
        for name, tasks in sorted(collections.Counter(worker for _, _, worker in journal.ran).items()):
            print(f"         {name} ran {tasks} tasks")
        check(
            "and each result is in the state once",
            all(sorted(entry.split(" by ")[0] for entry in done(thread)) == TASKS for thread in threads),
        )

        print("One that loses its claim in the middle of a step:")
        thread, folded = taken_over(uri, connection)
        check("the other runs the step anew", done(thread) == [f"{task} by bob" for tasks in STEPS for task in tasks])
        check("and the late fold is refused", not folded)
    print("every check held" if not failed else f"{len(failed)} did not hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
