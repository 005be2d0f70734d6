"""Starts agents, kills them with SIGKILL, and keeps the books: which tool ran where, and what was logged by then."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import psycopg
from psycopg.rows import namedtuple_row

from conversations import Conversation, elements, members, strict

AGENT = Path(__file__).with_name("agent.py")


class Event(NamedTuple):
    """A line of an agent's journal."""

    what: str  # open, begin, ran, logged, folded, appended, done
    pid: int
    thread: str
    task: str


class Job(NamedTuple):
    """A conversation to be worked through in a thread."""

    thread: str
    talk: Conversation
    file: Path


class AgentFailed(Exception):
    """An agent ended by itself with an error."""


class Run(NamedTuple):
    """What became of one agent process."""

    pid: int
    killed: bool
    events: List[Event]


class Supervisor:
    """One lane: at any time at most one agent process runs under it."""

    def __init__(self, uri: str, folder: Path, lane: str):
        self.uri = uri
        self.folder = folder
        self.conn = psycopg.connect(uri, autocommit=True, application_name=f"resume demo, supervisor {lane}")
        self.journal = folder / f"journal-{lane}"
        self.journal.write_bytes(b"")
        self.journal_read = 0
        self.process: Optional[subprocess.Popen] = None
        self.stopped = False
        self.kills: Counter = Counter()  # by the last thing that the killed agent told
        # (thread, task) → the processes in which the tool began, and the one which told that its result is logged
        self.began: Dict[Tuple[str, str], List[int]] = defaultdict(list)
        self.told_logged: Dict[Tuple[str, str], int] = {}
        self.logged: Set[Tuple[str, str]] = set()  # known to be logged, from an agent's word or from the database
        self.ran_after_logged: List[Tuple[str, str]] = []  # must stay empty

    def run(
        self,
        jobs: List[Job],
        stop: Optional[Callable[[Event], bool]] = None,
        after: Optional[int] = None,
        delay: float = 0.0,
    ) -> Run:
        """Runs an agent on the jobs until it ends or is killed.

        `stop`: kill it at the first event for which this holds. The agent waits at each event for leave to go on, so it
        dies exactly there. `after`, `delay`: kill it so many seconds after its event number `after` (0: its start),
        while it runs on; where that hits is chance.
        """
        command = [sys.executable, str(AGENT), "--uri", self.uri, "--journal", str(self.journal)]
        command += ["--lockstep"] if stop else []
        for job in jobs:
            command += [job.thread, str(job.file)]
        events: List[Event] = []
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
            self.process = process
            if after == 0:
                time.sleep(delay)
                process.kill()
            for line in process.stdout:
                events.append(Event(*json.loads(line)))
                if stop and stop(events[-1]) or len(events) == after:
                    time.sleep(delay)
                    process.kill()
                elif stop:
                    _let_go_on(process)
            status = process.wait()
            process.stdin.close()
            process.stdout.close()
            if status not in (0, -signal.SIGKILL):
                errors.seek(0)
                raise AgentFailed(errors.read().decode(errors="replace").strip())
        killed = status < 0
        if killed:
            self.kills[events[-1].what if events else "start"] += 1
        self._read_journal()
        for job in jobs:
            if any(event.thread == job.thread for event in events):
                self._ask_what_is_logged(job)
        return Run(process.pid, killed, events)

    def complete(self, jobs: List[Job], dice: random.Random, most_events: int) -> None:
        """Works through the jobs until all are done, killing each agent at a random moment (if it is not done before)."""
        while jobs and not self.stopped:
            after = 0 if dice.random() < 0.1 else dice.randint(1, most_events)
            delay = dice.uniform(0, 0.25 if after == 0 else 0.004)
            run = self.run(jobs, after=after, delay=delay)
            done = {event.thread for event in run.events if event.what == "done"}
            jobs = [job for job in jobs if job.thread not in done]
        self.conn.close()

    def stop(self) -> None:
        """Ends it from another thread."""
        self.stopped = True
        if self.process and self.process.poll() is None:
            self.process.kill()

    def resume(self, thread: str):
        """What the database knows of a thread, once it has noticed that the thread's last agent is dead."""
        with self.conn.cursor(row_factory=namedtuple_row) as cursor:
            cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [thread])
            row = cursor.execute("SELECT next, finished, todo FROM ckpt_resume(%s)", [thread]).fetchone()
            cursor.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [thread])
        return row

    def _read_journal(self) -> None:
        """Books what the dead process has written into the journal."""
        with open(self.journal, "r+b") as file:
            file.seek(self.journal_read)
            text = file.read()
            if text and not text.endswith(b"\n"):  # it died while it wrote: what it was about to do, it did not do
                file.write(b"\n")
                text = text[: text.rfind(b"\n") + 1]
            self.journal_read = file.tell()
        for line in text.splitlines():
            event = Event(*json.loads(line))
            key = event.thread, event.task
            if event.what == "begin":
                if key in self.logged:
                    self.ran_after_logged.append(key)
                self.began[key].append(event.pid)
            elif event.what == "logged":
                self.logged.add(key)
                self.told_logged[key] = event.pid

    def _ask_what_is_logged(self, job: Job) -> None:
        """Books what the database holds: the finished tasks of the step at hand, and all of the steps before it."""
        row = self.resume(job.thread)
        if row is None:
            return
        folded: Set[str] = set()
        for step in job.talk.steps:
            tasks = {call.task for call in step}
            if tasks & set(row.next):
                break
            folded |= tasks
        self.logged.update((job.thread, task) for task in folded | set(row.finished))


def _let_go_on(process: subprocess.Popen) -> None:
    try:
        os.write(process.stdin.fileno(), b"\n")
    except BrokenPipeError:
        pass  # it has ended by itself; its exit status tells why


def exactly_once(conn: psycopg.Connection, jobs: List[Job]) -> Tuple[int, int]:
    """Of the effects in the database that the jobs should have had: how many are there just once, and how many there are."""
    query = "SELECT thread, task, count(*) FROM resume_demo.bookings WHERE thread = ANY(%s) GROUP BY 1, 2"
    rows = conn.execute(query, [[job.thread for job in jobs]]).fetchall()
    once = {(thread, task) for thread, task, count in rows if count == 1}
    wanted = {(job.thread, call.task) for job in jobs for call in job.talk.calls if call.in_database}
    return len(once & wanted), len(wanted | {(thread, task) for thread, task, _ in rows})


def faults(conn: psycopg.Connection, thread: str, talk: Conversation) -> List[str]:
    """Compares what the database holds of a thread with the recording; says what differs."""
    found = []
    text = conn.execute("SELECT ckpt_state(%s)::text", [thread]).fetchone()[0]
    state = strict(text)
    if state.get("conversation") != talk.id:
        found.append(f"state: conversation is {state.get('conversation')!r}")
    if talk.calls and state.get("tools_run") != ("number", str(len(talk.calls))):
        found.append(f"state: tools_run is {state.get('tools_run')}, not {len(talk.calls)}")
    results = elements(members(text)["messages"]) if isinstance(state.get("messages"), list) else []
    found += _differences("state: result", results, [call.result for call in talk.calls])

    rows = conn.execute("SELECT seq, message::text FROM ckpt_messages(%s)", [thread]).fetchall()
    if [row[0] for row in rows] != list(range(1, len(rows) + 1)):
        found.append(f"log: seq is {[row[0] for row in rows]}")
    found += _differences("log: message", [row[1] for row in rows], talk.messages)

    return [f"{thread}: {fault}" for fault in found]


def _differences(what: str, texts: List[str], wanted: List[str]) -> List[str]:
    """Byte for byte. Each one exactly once and in order."""
    found = [f"{what}: {len(texts)} of them, not {len(wanted)}"] if len(texts) != len(wanted) else []
    for number, (text, right) in enumerate(zip(texts, wanted), 1):
        if text != right:
            same = " (the same value, written otherwise)" if strict(text) == strict(right) else ""
            found.append(f"{what} {number} is {text[:60]}, not {right[:60]}{same}")
            break
    return found
