#!/usr/bin/env python3
"""Kills agents with SIGKILL, lets others resume their work, and checks that nothing was lost and nothing done twice.

    run.py --uri URI [--input FILE.jsonl] [--seed N] [--rounds N]

Part 1 tells one story slowly; part 2 repeats it with kills at random moments; part 3 does the same with all conversations of
a file: the samples beside this program, or --input. The exit status is 0 only if every check held, and 2 if nothing was run.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Callable, List, Sequence

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import conversations
from conversations import Conversation
from report import Report, shorten
from supervisor import AgentFailed, Job, Supervisor, exactly_once, faults

SAMPLES = Path(__file__).with_name("samples.jsonl")
LANES = 3  # agents at work at the same time
BATCH = 5  # conversations that one agent process works through, if it is left alive

PREAMBLE = '{"role": "system", "content": "You are a travel agent. Never stored: it is given with each request."}'

SETUP = """
CREATE SCHEMA resume_demo;
CREATE TABLE resume_demo.threads (thread text PRIMARY KEY);
-- The effects that tools have in the database. No key on purpose: an effect that comes twice shall be seen twice.
CREATE TABLE resume_demo.bookings (thread text NOT NULL, task text NOT NULL, tool text NOT NULL, pid int NOT NULL);
"""


class CannotRun(Exception):
    """The demonstration has not begun, and why."""


class Demo:
    def __init__(self, uri: str, folder: Path, seed: int):
        self.report = Report()
        self.folder = folder
        self.seed = seed
        self.supervisors: List[Supervisor] = []
        self.uri, self.version = find_extension(uri)
        self.conn = psycopg.connect(self.uri, autocommit=True, application_name="resume demo")
        if not self.conn.execute("SELECT pg_try_advisory_lock(hashtextextended('resume_demo', 0))").fetchone()[0]:
            raise CannotRun("another demonstration is running in this database")
        # What an earlier demonstration left goes first.
        if self.conn.execute("SELECT to_regclass('resume_demo.threads')").fetchone()[0]:
            self.conn.execute("SELECT ckpt_delete_thread(thread) FROM resume_demo.threads")
        self.conn.execute("DROP SCHEMA IF EXISTS resume_demo CASCADE")
        self.conn.execute(SETUP)

    def job(self, name: str, talk: Conversation) -> Job:
        """A conversation in a file of its own, for agents to read, and in a thread of which nothing is there yet."""
        file = self.folder / f"{name}.jsonl"
        file.write_bytes(talk.line.encode() + b"\n")
        thread = f"resume-demo/{name}"
        self.conn.execute("INSERT INTO resume_demo.threads VALUES (%s) ON CONFLICT DO NOTHING", [thread])
        self.empty(thread)
        return Job(thread, talk, file)

    def empty(self, thread: str) -> None:
        self.conn.execute("DELETE FROM resume_demo.bookings WHERE thread = %s", [thread])
        self.conn.execute("SELECT ckpt_delete_thread(%s)", [thread])

    def state(self, thread: str) -> str:
        return self.conn.execute("SELECT ckpt_state(%s)::text", [thread]).fetchone()[0]

    def story(self, talk: Conversation) -> str:
        """Part 1. Returns the final state of a run that nobody interrupted."""
        say = self.report.say
        self.report.head("1. An agent is killed in the middle of a step, and others finish its work")
        supervisor = Supervisor(self.uri, self.folder, "story")
        job = self.job("killed", talk)
        first = len(talk.steps[0])
        logged, booked, mailed = talk.steps[0][1], talk.steps[0][3], talk.steps[1][1]

        run = supervisor.run([job], stop=lambda event: (event.what, event.task) == ("logged", logged.task))
        say(f"Agent {run.pid} begins. Its first step plans {first} tool calls, run one by one.")
        say(f"SIGKILL for agent {run.pid}: 2 of the {first} results are logged.")
        self.show_resume(supervisor, job)

        run = supervisor.run([job], stop=lambda event: (event.what, event.task) == ("ran", booked.task))
        say(f"Agent {run.pid} resumes.")
        say(f"SIGKILL for agent {run.pid}: {booked.tool} ran, but its result is not logged yet.")
        say("Its effect lies in the transaction that logs the result, and is undone with it:")
        self.show_resume(supervisor, job)

        run = supervisor.run([job], stop=lambda event: (event.what, event.task) == ("ran", mailed.task))
        say(f"Agent {run.pid} resumes, finishes the first step and begins the second.")
        say(f"SIGKILL for agent {run.pid}: {mailed.tool} ran, but its result is not logged yet.")
        say("Its effect lies outside the database, where nobody can undo it.")

        run = supervisor.run([job])
        say(f"Agent {run.pid} resumes and finishes. What ran where:")
        bookings = Counter(
            row[0] for row in self.conn.execute("SELECT task FROM resume_demo.bookings WHERE thread = %s", [job.thread])
        )
        self.report.table(
            [
                [
                    call.task,
                    call.tool,
                    " ".join(str(pid) for pid in supervisor.began[job.thread, call.task]),
                    str(supervisor.told_logged.get((job.thread, call.task), "nobody")),
                    f"database: {bookings[call.task]} row" if call.in_database else "outside",
                ]
                for call in talk.calls
            ],
            head=["task", "tool", "ran in process", "logged by", "its effect"],
        )

        plain = self.job("uninterrupted", talk)
        supervisor.run([plain])
        state = self.state(plain.thread)
        again = [call.task for call in talk.calls if len(supervisor.began[job.thread, call.task]) > 1]
        once, effects = exactly_once(self.conn, [job])
        check = self.report.check
        check(not supervisor.ran_after_logged, "no tool ran again after its result was logged")
        check(
            again == [booked.task, mailed.task],
            f"{' and '.join(again)} ran again: they had run, but were not logged",
        )
        check(once == effects, f"effects in the database, exactly once: {once} of {effects}")
        check(self.state(job.thread) == state, "the final state equals that of an uninterrupted run, byte for byte")
        wrong = [*faults(self.conn, job.thread, talk), *faults(self.conn, plain.thread, talk)]
        check(not wrong, "state and message log hold what they should, in order", wrong)
        self.show_window(job)
        return state

    def show_resume(self, supervisor: Supervisor, job: Job) -> None:
        row = supervisor.resume(job.thread)
        query = "SELECT count(*) FROM resume_demo.bookings WHERE thread = %s AND task = %s"
        rows = []
        for call in job.talk.calls:
            if call.task in row.next:
                effect = "outside"
                if call.in_database:
                    count = self.conn.execute(query, [job.thread, call.task]).fetchone()[0]
                    effect = f"database: {count} row" + ("" if count == 1 else "s")
                known = "finished" if call.task in row.finished else "todo" if call.task in row.todo else "neither"
                rows.append([call.task, call.tool, known, effect])
        self.report.table(rows, head=["task", "tool", "ckpt_resume says", "its effect"])

    def show_window(self, job: Job) -> None:
        """The last messages of the log, as a model would get them."""
        call = f"ckpt_window('{job.thread}', size => 2, preamble => ...)"
        self.report.say()
        self.report.say(f"What the model should read next, SELECT * FROM {call}:")
        rows = self.conn.execute(
            "SELECT ordinal, kind, role, seq, content FROM ckpt_window(%s, size => 2, preamble => %s::json)"
            " ORDER BY ordinal",
            [job.thread, PREAMBLE],
        ).fetchall()
        self.report.table(
            [[*row[:3], "" if row[3] is None else str(row[3]), shorten(row[4] or "", 72)] for row in rows],
            head=["ordinal", "kind", "role", "seq", "content"],
        )
        self.report.check(
            [row[1] for row in rows[:1] + rows[-1:]] == ["preamble", "final"],
            "the window begins with the preamble and ends with the final turn",
        )

    def rounds(self, talk: Conversation, state: str, rounds: int) -> None:
        """Part 2."""
        self.report.head(f"2. The same, killed at random moments, {rounds} times")
        jobs = [self.job(f"round-{number}", talk) for number in range(1, rounds + 1)]
        progress = Progress(self.report, "rounds", rounds)

        def work(job: Job) -> Supervisor:
            dice = random.Random(f"{self.seed} {job.thread}")
            while True:
                supervisor = Supervisor(self.uri, self.folder, job.file.stem)
                self.supervisors.append(supervisor)
                supervisor.complete([job], dice, events_of(talk))
                if supervisor.kills or supervisor.stopped:
                    progress.add(1, supervisor)
                    return supervisor
                self.empty(job.thread)  # it was over before the kill struck: that does not count, so once more

        supervisors = self.in_parallel(work, jobs)
        equal = sum(self.state(job.thread) == state for job in jobs)
        self.count("rounds", supervisors, jobs)
        self.report.check(equal == rounds, f"states equal to that of an uninterrupted run: {equal} of {rounds}")
        self.check_books(supervisors, jobs)
        wrong = [fault for job in jobs for fault in faults(self.conn, job.thread, talk)]
        self.report.check(not wrong, "states and message logs hold what they should, in order", wrong)

    def replay(self, talks: List[Conversation], source: str) -> str:
        """Part 3. Returns the result in one line."""
        report = self.report
        report.head(f"3. {len(talks)} recorded conversations of {source}, killed at random moments")
        report.say(f"{sum(len(talk.calls) for talk in talks)} tool calls, {sum(len(talk.messages) for talk in talks)}"
                   f" messages, {LANES} agents at a time; every turn is appended twice")
        jobs = [self.job(f"replay-{number}", talk) for number, talk in enumerate(talks, 1)]
        progress = Progress(report, "conversations", len(talks))
        # An agent lives for 1.2 conversations at most, 0.6 on average: that many events.
        most_events = sum(map(events_of, talks)) * 12 // 10 // len(talks)

        def work(batch: List[Job]) -> Supervisor:
            supervisor = Supervisor(self.uri, self.folder, batch[0].file.stem)
            self.supervisors.append(supervisor)
            supervisor.complete(batch, random.Random(f"{self.seed} {batch[0].thread}"), most_events)
            progress.add(len(batch), supervisor)
            return supervisor

        supervisors = self.in_parallel(work, [jobs[begin : begin + BATCH] for begin in range(0, len(jobs), BATCH)])
        self.count("conversations", supervisors, jobs)
        wrong = {job.thread: faults(self.conn, job.thread, job.talk) for job in jobs}
        intact = sum(not found for found in wrong.values())
        self.check_books(supervisors, jobs)
        report.check(
            intact == len(jobs),
            "each result once and in order in the state, each message in the log, byte for byte",
            [fault for found in wrong.values() for fault in found],
        )
        return f"{intact} of {len(jobs)} conversations intact"

    def in_parallel(self, work: Callable[[Any], Supervisor], items: Sequence[Any]) -> List[Supervisor]:
        """Does the work for each item, in several lanes; the first error ends them all."""
        with ThreadPoolExecutor(LANES) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                return [future.result() for future in futures if future.done()]
            finally:
                for future in futures:
                    future.cancel()
                for supervisor in self.supervisors:
                    supervisor.stop()

    def count(self, what: str, supervisors: List[Supervisor], jobs: List[Job]) -> None:
        kills = sum((supervisor.kills for supervisor in supervisors), Counter())
        runs = sum(len(pids) for supervisor in supervisors for pids in supervisor.began.values())
        tools = sum(len(supervisor.began) for supervisor in supervisors)
        after = sum(len(supervisor.ran_after_logged) for supervisor in supervisors)
        once, effects = exactly_once(self.conn, jobs)
        self.report.table([
            [what, f"{len(jobs)}"],
            ["agents killed", f"{sum(kills.values())}"],
            *([f"  {text}", f"{kills[last]}"] for last, text in KILLED.items()),
            ["tools run", f"{tools}"],
            ["tools run again, not logged yet", f"{runs - tools - after}"],
            ["tools run again after being logged", f"{after}"],
            ["effects in the database, exactly once", f"{once} of {effects}"],
        ])

    def check_books(self, supervisors: List[Supervisor], jobs: List[Job]) -> None:
        after = [f"{thread} {task}" for supervisor in supervisors for thread, task in supervisor.ran_after_logged]
        self.report.check(not after, "no tool ran again after its result was logged", after)
        began = {key for supervisor in supervisors for key in supervisor.began}
        self.report.check(
            began == {(job.thread, call.task) for job in jobs for call in job.talk.calls}, "every planned tool ran"
        )
        once, effects = exactly_once(self.conn, jobs)
        self.report.check(once == effects, "every effect in the database came about exactly once")


# When an agent was killed, by the last thing it told.
KILLED = {
    "start": "while it started",
    "open": "while it asked what to do",
    "begin": "while a tool ran",
    "ran": "between a tool's end and its log entry",
    "logged": "after a result was logged",
    "folded": "after a step was folded",
    "appended": "while a turn was appended",
    "done": "between two conversations",
}


class Progress:
    """A line now and then; what it counts ends in several threads."""

    def __init__(self, report: Report, what: str, total: int):
        self.report = report
        self.what = what
        self.total = total
        self.done = self.kills = self.told = 0
        self.begin = time.monotonic()
        self.lock = threading.Lock()

    def add(self, done: int, supervisor: Supervisor) -> None:
        with self.lock:
            self.done += done
            self.kills += sum(supervisor.kills.values())
            if self.done - self.told >= 10 or self.done == self.total:
                self.told = self.done
                seconds = time.monotonic() - self.begin
                self.report.say(f"{self.done:4} of {self.total} {self.what}, {self.kills} kills, {seconds:.0f} s")


def events_of(talk: Conversation) -> int:
    """How many events an agent tells of a conversation, if it is left alive."""
    return 2 + 3 * len(talk.calls) + len(talk.steps) + 2 * len(talk.turns)


def find_extension(uri: str):
    """The URI with a search_path on which the extension's functions are found, and the versions of both."""
    with psycopg.connect(uri) as conn:
        row = conn.execute(
            "SELECT n.nspname, e.extversion, current_setting('server_version') FROM pg_extension e"
            " JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'checkpointer'"
        ).fetchone()
    if row is None:
        raise CannotRun("this database has no extension checkpointer; in psql: CREATE EXTENSION checkpointer;")
    path = '"' + row[0].replace('"', '""') + '"'
    path = path.replace("\\", "\\\\").replace(" ", "\\ ")  # how libpq's options want it
    options = f"{conninfo_to_dict(uri).get('options', '')} -csearch_path={path}".strip()
    return make_conninfo(uri, options=options), f"checkpointer {row[1]} on PostgreSQL {row[2].split()[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills agents and checks that others can finish their work.")
    parser.add_argument("--uri", required=True, help="connection URI of a database with the extension checkpointer")
    parser.add_argument("--input", metavar="FILE.jsonl", help="replay these conversations instead of the samples")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="for the random moments")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of part 2 (default: 20)")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    source = options.input or str(SAMPLES)
    with tempfile.TemporaryDirectory(prefix="resume-demo-") as folder:
        try:
            talks = conversations.read(source)
            trip = conversations.read(str(SAMPLES))[0]
            demo = Demo(options.uri, Path(folder), options.seed)
        except conversations.Refused as refused:
            print(f"{source} is refused, nothing was run:", *refused.reasons[:20], sep="\n  ", file=sys.stderr)
            return 2
        except (OSError, CannotRun, psycopg.Error) as error:
            print(f"nothing was run: {error}", file=sys.stderr)
            return 2
        print(f"{demo.version}; seed {options.seed}")
        try:
            state = demo.story(trip)
            demo.rounds(trip, state, options.rounds)
            return demo.report.close(demo.replay(talks, os.path.basename(source)))
        except AgentFailed as error:
            print(f"\nFAILED: an agent ended with an error:\n{error}", flush=True)
        except psycopg.Error as error:
            print(f"\nFAILED: {error}", flush=True)
        except KeyboardInterrupt:
            print("\ninterrupted", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
