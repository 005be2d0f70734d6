"""Holds what is there against what the clients were told. It knows what the functions promise and nothing of how they work.

In threads that nothing is removed from the account is exact: what was acknowledged is there, once; what was not is there
once, whole, or not at all. Elsewhere what is missing must be explained by a removal that had not ended before it was begun,
and what was removed after all that could bring it must be gone."""

import itertools
from collections import Counter, defaultdict
from functools import cached_property

import psycopg
from psycopg.types.string import TextLoader

from torture import folds
from torture.record import (
    LEASE, LOST, messages, metadata, read_json, state, summary, typed_value, typed_write,
)  # fmt: skip
from torture.requests import typed_body

# Of these threads every put is a child of the one before.
LINEAR = {"put", "pair", "pruned", "runs", "doomed", "source", "copy"}
PUTS, APPENDS = {"put", "pair"}, {"append", "pair"}


class Thread:
    """What is there of a thread, and what was done to it."""

    def __init__(self, checker, name, ops):
        self.checker, self.name, self.ops = checker, name, ops
        self.kind = name.split("-")[0]

    def find(self, what):
        self.checker.findings.append(f"{self.name}: {what}")

    def expect(self, holds, what):
        if not holds:
            self.find(what)

    def of(self, *kinds):
        return [op for op in self.ops if op.spec["kind"] in kinds]

    def rows(self, query, *args):
        return self.checker.connection.execute(query, args).fetchall()

    @cached_property
    def checkpoints(self):
        """Id → parent, metadata, state."""
        columns = "checkpoint_id, parent_checkpoint_id, metadata, ckpt_state(thread_id, checkpoint_id)"
        query = f"SELECT {columns} FROM ckpt_list(%s, '')"
        return {row[0]: row[1:] for row in self.rows(query, self.name)}

    @cached_property
    def log(self):
        return self.rows("SELECT seq, turn, role, message, msg_id FROM ckpt_messages(%s)", self.name)

    def chain(self):
        """The checkpoints from the first to the last, of a thread that has no branches."""
        children = Counter(parent for parent, *_ in self.checkpoints.values())
        for parent, count in children.items():
            self.expect(count == 1, f"{count} checkpoints have the parent {parent}")
        child = {parent: name for name, (parent, *_) in self.checkpoints.items()}
        chain, at = [], None
        while (at := child.get(at)) and len(chain) < len(child):
            chain.append(at)
        count = len(self.checkpoints)
        self.expect(len(chain) == count, f"of {count} checkpoints the chain from the root has {len(chain)}")
        latest = self.rows("SELECT checkpoint_id FROM ckpt_latest(%s)", self.name)
        self.expect(latest == [(name,) for name in chain[-1:]], f"the latest is {latest}, the end of the chain {chain[-1:]}")
        return chain

    # What is there

    def check_checkpoints(self, source=None):
        """Each is one that was put, whole; `source`: the thread that this is a copy of."""
        origin = source or self
        puts = defaultdict(list)
        for op in origin.of(*PUTS):
            puts[op.spec["id"]].append(op)
        forks = {op.result[0][0]: op for op in origin.of("fork") if op.acknowledged}
        forked = Counter()
        for name, (parent, told, given) in self.checkpoints.items():
            self.expect(parent is None or parent in self.checkpoints, f"{name} has a parent that does not exist: {parent}")
            if name not in puts:
                self.check_fork(name, parent, told, given, forks.get(name))
                forked[parent] += 1
                continue
            known = puts[name]
            self.expect(any(op.possible for op in known), f"{name} is there and was refused")
            right = any(self.is_as_put(op, told, given, origin.name) for op in allowed_revisions(known))
            self.expect(right, f"{name} is not what was put: {told} {given[:200]}")
            fences = [op.spec["fence"] for op in known if "fence" in op.spec and op.possible]
            self.expect(not fences or (parent or "") in fences, f"{name} was put on {parent}, expected was {fences}")
            wanted = [op.spec["parent"] for op in known if "parent" in op.spec]
            self.expect(not wanted or parent in wanted, f"{name} was put on {parent}, not on {wanted}")
        attempts = Counter()
        for op in origin.of("fork"):
            attempts[op.spec["id"]] += len(op.attempts)
        for base, count in forked.items():
            self.expect(count <= attempts[base], f"{base} was forked {attempts[base]} times and has {count} forks")

    @staticmethod
    def is_as_put(op, told, given, thread):
        name, revision = op.spec["id"], op.spec.get("revision", 0)
        same = read_json(given) == read_json(state(thread, name, revision))
        return same and told == metadata(name, revision, op.spec.get("run"))

    def check_fork(self, name, parent, told, given, op):
        self.expect(read_json(told) == (("source", "fork"),), f"nobody put {name}: {told}")
        same = parent in self.checkpoints and given == self.checkpoints[parent][2]
        self.expect(same, f"the fork {name} is not as its base {parent}")
        self.expect(op is None or op.spec["id"] == parent, f"the fork {name} has the parent {parent}")

    def check_log(self, source=None):
        """Each turn is there once and whole; `seq` rises, without a gap where there were no rewinds."""
        origin = source or self
        turns = {op.spec["turn"]: op for op in origin.of(*APPENDS)}
        seqs, ids = [row[0] for row in self.log], Counter(row[4] for row in self.log)
        whole = list(range(1, len(seqs) + 1))
        self.expect(seqs == whole or self.kind == "rewound" and seqs == sorted(set(seqs)), f"the seqs are {seqs[:50]}")
        self.expect(not self.log or max(ids.values()) == 1, f"twice: {[name for name, count in ids.items() if count > 1]}")
        for turn, rows in self.by_turn():
            op = turns.get(turn)
            if op is None or not op.possible:
                self.find(f"nobody appended the turn {turn}")
                continue
            said = [read_json(row[3]) for row in rows]
            wanted = [read_json(folds.dumps(message)) for message in messages(turn, op.spec["count"])]
            # A rewind can cut a turn.
            whole = said == wanted or self.kind == "rewound" and said == wanted[: len(said)]
            self.expect(whole, f"the turn {turn} is not what was appended: {said}")

    def by_turn(self):
        grouped = []
        for row in self.log:
            if not grouped or grouped[-1][0] != row[1]:
                grouped.append((row[1], []))
            grouped[-1][1].append(row)
        seen = Counter(turn for turn, _ in grouped)
        for turn, count in seen.items():
            self.expect(count == 1, f"the turn {turn} is there {count} times")
        return grouped

    # What must be there, and what must not

    def has(self, op):
        state_there = op.spec["kind"] not in PUTS or op.spec["id"] in self.checkpoints
        log_there = op.spec["kind"] not in APPENDS or op.spec["turn"] in self.turns
        return state_there, log_there

    @cached_property
    def turns(self):
        return {row[1] for row in self.log}

    def check_account(self, removals=(), cause=None):
        """`cause(op, removal)`: whether this removal takes what the op brings."""
        for op in self.of(*PUTS, *APPENDS):
            there = self.has(op)
            self.expect(op.spec["kind"] != "pair" or len(set(there)) == 1, f"half of {op.name} is there")
            concerned = [removal for removal in removals if cause is None or cause(op, removal)]
            if not all(there) and op.acknowledged:
                explained = any(removal.possible and removal.end > op.start for removal in concerned)
                self.expect(explained, f"{op.name} was acknowledged and is missing: {op.spec}")
            whole = [removal for removal in concerned if removal.acknowledged and self.takes_all(removal)]
            gone = any(op.end < removal.start for removal in whole)
            self.expect(not (all(there) and gone), f"{op.name} was removed and is there: {op.spec}")

    def takes_all(self, removal):
        return removal.spec["kind"] in ("delete_thread", "delete_runs")

    def check_forks(self):
        for op in self.of("fork"):
            self.expect(not op.acknowledged or op.result[0][0] in self.checkpoints, f"the fork {op.name} is missing: {op.result}")

    def check_summaries(self):
        """The newest that was acknowledged is served, and one client at a time has the job."""
        puts = [op for op in self.of("put_summary") if op.possible]
        known = max((op.spec["covers"] for op in puts if op.acknowledged), default=0)
        served = self.rows("SELECT content FROM ckpt_window(%s, 1) WHERE kind = 'summary'", self.name)
        right = {summary(self.name, op.spec["covers"]) for op in puts if op.spec["covers"] >= known}
        if known:
            self.expect(any(content.split("\n")[0] in right for (content,) in served), f"{served} is served, not {right}")
        jobs = [op.attempts[-1] for op in self.of("summary_due") if op.acknowledged and op.result]
        for one, other in itertools.permutations(jobs, 2):
            leased = one.start <= other.start and other.end < one.start + LEASE
            done = any(op.start < other.end and op.end > one.start for op in puts)
            self.expect(not leased or done, f"two clients had the job of a summary: {one} {other}")

    def check_rewound(self):
        rewinds = self.of("rewind")
        seqs, owner = {(row[1], row[4]): row[0] for row in self.log}, {}
        for op in self.of("append"):
            for seq, msg_id, inserted in op.result or []:
                # A seq belongs to one message for ever.
                key = (op.spec["turn"], msg_id)
                self.expect(owner.setdefault(seq, key) == key, f"the seq {seq} was given to {owner[seq]} and to {key}")
                there = seqs.get(key) == seq
                # A turn that was rewound and sent again has another seq.
                gone = any(removal.possible and removal.spec["after"] < seq and removal.end > op.start for removal in rewinds)
                self.expect(there or gone, f"{op.name} was acknowledged as {seq} and is missing")
        for seq, turn, _, _, msg_id in self.log:
            self.expect(owner.setdefault(seq, (turn, msg_id)) == (turn, msg_id), f"the seq {seq} was used twice")
        self.check_gaps(rewinds)

    def check_gaps(self, rewinds):
        there = {row[0] for row in self.log}
        for seq in set(range(1, max(there, default=0))) - there:
            self.expect(any(op.possible and op.spec["after"] < seq for op in rewinds), f"the seq {seq} is missing")

    def check_pruned(self):
        puts, prunes = self.of("put"), self.of("prune")
        least = min((op.spec["keep"] for op in prunes), default=0)
        self.check_account(prunes)
        kept = min(least, sum(op.acknowledged for op in puts))
        count = len(self.checkpoints)
        self.expect(count >= kept, f"{count} checkpoints are left, of {len(puts)} with keep {least}")
        for op in puts:
            if op.acknowledged and op.spec["id"] not in self.checkpoints:
                later = sum(other is not op and other.possible and other.end > op.start for other in puts)
                self.expect(later >= least, f"{op.name} was pruned and is among the last {least}")

    def check_copy(self):
        """A copy is what its source was at one time while it was made."""
        copies, deletions = self.of("copy"), self.of("delete_thread")
        [copy] = copies
        source = self.checker.thread(copy.spec["source"])
        refused = copy.refused and copy.attempts[-1].sqlstate == "55000"
        there = bool(self.checkpoints)
        if refused:
            self.expect(copy.unanswered, f"the copy {copy.name} was refused, though nothing was there")
        if copy.acknowledged or refused:
            self.expect(there or any(op.possible for op in deletions), f"the copy {copy.name} is missing")
        if any(op.acknowledged and op.start > copy.end for op in deletions):
            self.expect(not there and not self.log, "was deleted and is there")
        if not there:
            return
        chain, whole = self.chain(), source.chain()
        self.expect(chain == whole[: len(chain)], f"the copy has {chain}, its source {whole}")
        rows = [row[:1] + row[2:] for row in self.log]
        # Ids stay.
        self.expect(rows == [row[:1] + row[2:] for row in source.log[: len(rows)]], "the log is not the source's")
        for op in source.of(*PUTS, *APPENDS):
            if op.acknowledged and op.told < copy.start:
                self.expect(all(self.has(op)), f"{op.name} was acknowledged before the copy and is missing in it")
        self.check_checkpoints(source)
        self.check_log(source)

    def check_typed(self):
        ops = {op.spec["id"]: op for op in self.of("typed")}
        there, writes = {}, defaultdict(list)
        channels = defaultdict(dict)
        rows = self.rows(
            "SELECT kind, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, task_id, idx, channel, version, value_type,"
            " value FROM ckpt_list_typed(%s)",
            self.name,
        )
        for kind, name, parent, body, told, task, idx, channel, version, tag, value in rows:
            if kind == "checkpoint":
                self.expect(name not in there, f"{name} is there twice")
                there[name] = parent
                right = name in ops and (parent or "", body, told) == (ops[name].spec["parent"], typed_body(name), metadata(name))
                self.expect(right and ops[name].possible, f"{name} is not what was put: {parent} {body} {told}")
            elif kind == "channel":
                channels[name][channel] = folds.loads(version)
                right = (tag, value) == ("t", typed_value(channel, folds.loads(version)))
                self.expect(right, f"{channel} of {name} is not what its version {version} was put with")
            elif kind == "write":
                writes[name, task].append((idx, channel, tag, value))
        for name, op in ops.items():
            self.expect(name in there or not op.acknowledged, f"{op.name} was acknowledged and is missing")
            self.expect(name not in there or channels[name] == op.spec["versions"], f"{name} has the versions {channels[name]}")
        self.check_typed_writes(there, writes)

    def check_typed_writes(self, there, writes):
        for op in self.of("typed_writes"):
            if op.spec["id"] not in there:
                continue
            found = sorted(writes.pop((op.spec["id"], op.spec["task"]), []))
            wanted = [(idx, "small", "t", typed_write(op.spec["task"], idx)) for idx in range(op.spec["count"])]
            # A batch without writes is a mark, and none is shown.
            right = found == wanted or not found and not op.acknowledged
            self.expect(right, f"{op.name}: of {len(wanted)} writes there are {len(found)}")
        self.expect(not writes, f"nobody wrote {list(writes)[:3]}")

    def check(self):
        if self.kind == "copy":
            return self.check_copy()
        if self.kind == "fold":
            return folds.check(self)
        if self.kind == "typed":
            return self.check_typed()
        if self.kind in LINEAR:
            self.chain()
        self.check_checkpoints()
        self.check_log()
        match self.kind:
            case "rewound":
                self.check_rewound()
            case "pruned":
                self.check_pruned()
            case "runs":
                same = lambda op, removal: op.spec["run"] in removal.spec["runs"]
                self.check_account(self.of("delete_runs"), same)
            case "doomed":
                self.check_account(self.of("delete_thread"))
            case _:
                self.check_account()
                self.check_forks()
                self.check_summaries()


def allowed_revisions(ops):
    """The last that was acknowledged, and those that may have come later."""
    acknowledged = [op for op in ops if op.acknowledged]
    return acknowledged[-1:] + [op for op in ops if op.unanswered]


class Checker:
    def __init__(self, connection, records):
        self.connection, self.records = connection, records
        self.findings, self.counted = list(records.findings), Counter()
        ops = defaultdict(list)
        for op in records.ops.values():
            ops[op.spec["thread"]].append(op)
        self.threads = {name: Thread(self, name, ops[name]) for name in ops}

    def thread(self, name):
        if name not in self.threads:
            self.threads[name] = Thread(self, name, [])
        return self.threads[name]

    def check(self):
        for op in self.records.ops.values():
            self.counted[f"{op.spec['kind']} {'acknowledged' if op.acknowledged else 'not acknowledged'}"] += 1
            self.counted["attempts without an answer"] += sum(attempt.outcome in (LOST, None) for attempt in op.attempts)
            self.counted["of these applied, as the next attempt was told"] += op.was_there
        there = {row[0] for row in self.connection.execute("SELECT DISTINCT thread_id FROM ckpt_list()").fetchall()}
        for name in there - self.threads.keys():
            self.findings.append(f"nobody made the thread {name}")
        for thread in list(self.threads.values()):
            thread.check()
        return self.findings


def check(cluster, records):
    """The checker, after it has looked at everything. It reads JSON as text."""
    with psycopg.connect(cluster.uri(), autocommit=True) as connection:
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)
        checker = Checker(connection, records)
        checker.check()
        return checker
