"""A client: does all that writes, on threads that others use too, as one that must not lose anything does. It notes what it is
about to do and what it was told; where an answer is lost it sends the same again; and if it is killed, its successor
takes up the work, mostly."""

import ctypes
import os
import random
import signal
import time

import psycopg

from torture.record import ANSWERED, LOST, REFUSED, Record, Records, record_path
from torture.requests import allowed, request

RETRIED = {"40001", "40P01"}
ISOLATION = ["read committed"] * 6 + ["repeatable read", "serializable"]
# Longer than a server needs to come back.
PATIENCE = 60.0
PR_SET_PDEATHSIG = 1


class Client:
    def __init__(self, slot, generation, settings):
        self.slot, self.generation, self.settings = slot, generation, settings
        self.draw = random.Random(f"{settings['seed']}/{slot}/{generation}")
        self.count = 0
        self.record = Record(record_path(settings["records"], slot, generation))
        self.connection = None
        self.begin_again()

    def begin_again(self):
        """Forgets what is only in memory, as its threads are no longer used."""
        self.era = self.era_now()
        self.seqs, self.versions, self.parents, self.runs, self.own = {}, {}, {}, {}, []

    def era_now(self):
        return int((time.monotonic() - self.settings["began"]) / self.settings["era"])

    def thread(self, kind, count=1):
        return f"{kind}-{self.draw.randrange(count)}-{self.era}"

    # Talking to the server

    def connected(self):
        end = time.monotonic() + PATIENCE
        while self.connection is None or self.connection.closed:
            options = f"-c default_transaction_isolation={self.draw.choice(ISOLATION).replace(' ', chr(92) + ' ')}"
            try:
                self.connection = psycopg.connect(
                    self.settings["uri"], host=os.path.join(self.settings["proxy"], str(self.slot)), autocommit=True,
                    application_name=f"torture-{self.slot}", options=options, prepare_threshold=None,
                )  # fmt: skip
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
        return self.connection

    def ask(self, query, *args):
        """A read: what came of it is in no record."""
        while True:
            try:
                return self.connected().execute(query, args).fetchall()
            except psycopg.Error as error:
                if not self.lost(error) and error.sqlstate not in RETRIED:
                    raise

    def lost(self, error):
        """Whether there is no answer. A connection that ends may end after the commit."""
        gone = self.connection is None or self.connection.closed or error.sqlstate is None or error.sqlstate.startswith("57")
        if gone and self.connection is not None:
            self.connection.close()
        return gone

    def run(self, statements):
        connection = self.connected()
        if len(statements) == 1:
            return connection.execute(*statements[0]).fetchall()
        connection.execute("BEGIN")
        rows = []
        for statement in statements:
            rows += connection.execute(*statement).fetchall()
        connection.execute("COMMIT /* writes */")
        return rows

    def do(self, kind, thread, **spec):
        """Until there is an answer: the rows, or the SQLSTATE of a refusal that another attempt would not change."""
        self.count += 1
        name = f"{self.slot}.{self.generation}.{self.count}"
        spec = {"kind": kind, "thread": thread} | spec
        self.record.write("intent", name, spec=spec)
        return self.attempt(name, spec)

    def attempt(self, name, spec):
        statements = request(spec)
        while True:
            self.connected()
            self.record.write("try", name)
            try:
                rows = self.run(statements)
            except psycopg.Error as error:
                if self.lost(error):
                    self.record.write(LOST, name, sqlstate=error.sqlstate)
                    continue
                self.record.write(REFUSED, name, sqlstate=error.sqlstate, detail=str(error)[:300])
                if len(statements) > 1:
                    self.rollback()
                if error.sqlstate not in allowed(spec):
                    self.record.write("finding", name, what=f"{spec} was refused: {error.sqlstate} {error}")
                if error.sqlstate not in RETRIED or "fence" in spec:
                    return error.sqlstate
                time.sleep(self.draw.uniform(0, 0.02))
                continue
            self.record.write(ANSWERED, name, result=rows)
            return rows

    def rollback(self):
        try:
            self.connection.execute("ROLLBACK")
        except psycopg.Error:
            self.connection.close()

    def take_up(self):
        """Mostly a successor finishes what it finds; else it may have been done or not."""
        if self.generation == 0 or self.draw.random() < 0.3:
            return
        path = record_path(self.settings["records"], self.slot, self.generation - 1)
        ops = list(Records([path]).ops.values()) if path.exists() else []
        if ops and not ops[-1].acknowledged and not ops[-1].refused:
            self.record.write("intent", ops[-1].name, spec=ops[-1].spec)
            self.attempt(ops[-1].name, ops[-1].spec)

    # What it does

    def fresh(self):
        return f"{self.slot}.{self.generation}.{self.count + 1}"

    def turn(self):
        return {"turn": f"turn-{self.fresh()}", "count": self.draw.randrange(1, 5)}

    def put(self):
        thread = self.thread("put", 2)
        if self.own and self.draw.random() < 0.15:
            thread, name, revision = self.own.pop(0)
            self.do("put", thread, id=name, revision=revision + 1)
            self.own.append((thread, name, revision + 1))
            return
        fence = {}
        if self.draw.random() < 0.4:
            latest = self.ask("SELECT checkpoint_id FROM ckpt_latest(%s)", thread)
            fence = {"fence": latest[0][0] if latest else ""}
        name = f"put-{self.fresh()}"
        if isinstance(self.do("put", thread, id=name, **fence), list) and "fence" not in fence:
            self.own = [*self.own[-5:], (thread, name, 0)]

    def fork(self):
        thread = self.thread("fork")
        known = self.ask("SELECT checkpoint_id FROM ckpt_list(%s, max_rows => 20)", thread)
        if known and self.draw.random() < 0.6:
            self.do("fork", thread, id=self.draw.choice(known)[0])
        else:
            parent = {"parent": self.draw.choice(known)[0]} if known and self.draw.random() < 0.5 else {}
            self.do("put", thread, id=f"put-{self.fresh()}", **parent)

    def append(self):
        self.do("append", self.thread("log", 2), **self.turn())

    def pair(self):
        self.do("pair", self.thread("pair"), id=f"put-{self.fresh()}", **self.turn())

    def summarise(self):
        thread = self.thread("log", 2)
        for covers, edits in self.do("summary_due", thread):
            self.do("put_summary", thread, covers=covers, edits=edits)

    def rewound(self):
        thread = self.thread("rewound")
        if thread in self.seqs and self.draw.random() < 0.08:
            self.do("rewind", thread, after=max(0, self.seqs[thread] - self.draw.randrange(6)))
        else:
            rows = self.do("append", thread, **self.turn())
            self.seqs[thread] = rows[-1][0]

    def step(self):
        thread = self.thread("fold", 2)
        rows = self.ask("SELECT checkpoint_id FROM ckpt_resume(%s)", thread)
        if not rows:
            if thread.startswith("fold-1"):
                self.do("define", thread)
                self.do("bind", thread)
            self.do("start", thread)
            return
        base = rows[0][0]
        task = {"base": base, "task": f"task-{self.fresh()}", "path": self.draw.choice(["", "~a", "~b"])}
        if self.draw.random() < 0.1 and not isinstance(self.do("error", thread, **task), list):
            return
        if self.draw.random() < 0.1 and not isinstance(self.do("ask", thread, **task), list):
            return
        written = self.do("writes", thread, **task)
        if isinstance(written, list) and self.draw.random() < 0.5:
            self.do("fold", thread, base=base, tasks=self.draw.choice([None, [], [task["task"]]]))

    def typed(self):
        thread = self.thread("typed", 2)
        name = f"typed-{self.fresh()}"
        versions, parent = self.versions.get(thread), self.parents.get(thread)
        if self.draw.random() < 0.3:
            # Its writes come before it.
            self.do("typed_writes", thread, id=name, task=f"task-{self.fresh()}", count=self.draw.randrange(4))
        version = f"version-{self.fresh()}"
        if versions is None:
            sent = ["small", "large", "document"]
            parent = self.draw.choice(["", f"never stored {name}"])
        else:
            sent = self.draw.sample(["small", "large", "document"], self.draw.randrange(3))
        versions = (versions or {}) | dict.fromkeys(sent, version)
        self.do("typed", thread, id=name, parent=parent, versions=versions, sent=sent)
        self.versions[thread], self.parents[thread] = versions, name
        if self.draw.random() < 0.4:
            self.do("typed_writes", thread, id=name, task=f"task-{self.fresh()}", count=self.draw.randrange(4))

    def prune(self):
        thread = self.thread("pruned")
        if self.draw.random() < 0.1:
            self.do("prune", thread, keep=self.draw.randrange(3, 7))
        else:
            self.do("put", thread, id=f"put-{self.fresh()}")

    def runs_of(self):
        thread = self.thread("runs")
        run, puts = self.runs.get(thread, (f"run-{self.fresh()}", 0))
        if puts and self.draw.random() < 0.2:
            del self.runs[thread]
            if self.draw.random() < 0.6:
                self.do("delete_runs", thread, runs=[run, "none"])
            return
        self.runs[thread] = run, puts + 1
        self.do("put", thread, id=f"put-{self.fresh()}", run=run)

    def doomed(self):
        thread = self.thread("doomed")
        match self.draw.choices(["put", "append", "delete"], [5, 5, 1])[0]:
            case "put":
                self.do("put", thread, id=f"put-{self.fresh()}")
            case "append":
                self.do("append", thread, **self.turn())
            case "delete":
                self.do("delete_thread", thread, block=self.draw.choice([None, "50 ms", "300 ms"]))

    def copied(self):
        source = self.thread("source")
        match self.draw.choices(["put", "append", "copy"], [2, 2, 3])[0]:
            case "put":
                self.do("put", source, id=f"put-{self.fresh()}")
            case "append":
                self.do("append", source, **self.turn())
            case "copy":
                if not self.ask("SELECT checkpoint_id FROM ckpt_latest(%s)", source):
                    return
                target = f"copy-{self.fresh()}-of-{source}"
                self.do("copy", target, source=source)
                if self.draw.random() < 0.6:
                    self.do("delete_thread", target, block=self.draw.choice([None, "1 hour"]))

    WORK = [(put, 6), (fork, 3), (append, 6), (summarise, 2), (pair, 4), (rewound, 5), (step, 12), (typed, 6)]
    WORK += [(prune, 5), (runs_of, 5), (doomed, 6), (copied, 2)]

    def work(self):
        works, weights = zip(*self.WORK, strict=True)
        self.take_up()
        while not os.path.exists(self.settings["stop"]):
            if self.era != self.era_now():
                self.begin_again()
            self.draw.choices(works, weights)[0](self)
            time.sleep(self.draw.uniform(0, self.settings["pause"]))


def main(slot, generation, settings):
    # Whoever started it may be killed outright, and it must not stay behind.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Client(slot, generation, settings).work()
