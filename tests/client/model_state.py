"""The state of a thread and namespace as the contract describes it, in memory: checkpoints, the batches that tasks log, folds,
deletions. Values are parsed JSON with numbers as Decimal. Nothing here knows how the extension does it."""

import hashlib
import re
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal, localcontext

SPECIAL = ("__error__", "__scheduled__", "__interrupt__", "__resume__")
CONTROL = {*SPECIAL, "__no_writes__", "__push__", "__return__", "__error_source_node__"}
UUID6 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-6([0-9a-f]{3})-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# Ids made now sort between the chosen ids that begin with 0 and those that begin with 3 and more, as those of our days do.
FIRST_TICKS = 0x1F2000000000000
# What a changed reducer can take of what the old one may have left.
SUCCESSORS = {"add_messages": {"append", "union"}, "append": {"union"}, "union": {"append"}}
REDUCERS = ("replace", "append", "add_messages", "sum", "merge", "union")


class Refused(Exception):
    """The call fails with this SQLSTATE and changes nothing."""

    def __init__(self, sqlstate):
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def is_ephemeral(message):
    return isinstance(message, dict) and message.get("ephemeral") is True


class Graph:
    """What is declared of channels; an empty one for a thread that is not bound."""

    def __init__(self, channels=None):
        self.channels = channels or {}

    def reducers(self):
        return {name: declared.get("reducer", "replace") for name, declared in self.channels.items()}

    def persists(self, channel):
        return self.channels.get(channel, {}).get("persist", True)

    def takes_over_from(self, older):
        """Whether what folds by the older graph's reducers can have left is taken by this one's."""
        new = self.reducers()
        pairs = [(reducer, new[name]) for name, reducer in older.reducers().items() if name in new]
        return all(after in (before, "replace") or after in SUCCESSORS.get(before, ()) for before, after in pairs)

    def has_messages(self, channel):
        return self.reducers().get(channel) == "add_messages"

    def state(self, state):
        """A state without what is not stored."""
        return {name: self.messages(name, value) for name, value in self.carried(state).items()}

    def carried(self, state):
        """What of a stored state goes on in a fold or a fork. Its ephemeral messages were dropped when it was put, unless the
        thread was bound later: a value that is stored is carried on as it is."""
        return {name: value for name, value in state.items() if self.persists(name)}

    def messages(self, channel, value):
        if not self.has_messages(channel):
            return value
        if isinstance(value, list):
            return [message for message in value if not is_ephemeral(message)]
        return [] if is_ephemeral(value) else value

    def writes(self, writes):
        """(idx, channel, value) of the ordinary ones that are stored."""
        ordinary = enumerate(write for write in writes if write[0] not in SPECIAL)
        return [(idx, channel, self.messages(channel, value)) for idx, (channel, value) in ordinary if self.persists(channel)]


@dataclass
class Checkpoint:
    parent: str | None
    at: int
    next: list
    state: dict
    metadata: dict
    folded_into: str | None = None
    # Got its parent when the one before was deleted, and so consumed none of its batches.
    adopted: bool = False

    def content(self):
        return self.next, list(self.state.items()), self.metadata


@dataclass
class Batch:
    """What a task logged for one child of its checkpoint. `writes` are its ordinary ones: None without any, [] a finish mark."""

    task: str
    begun: int
    path: str = ""
    writes: list | None = None
    special: dict = field(default_factory=dict)

    def standing(self):
        if "__error__" in self.special:
            return "failed"
        if self.writes is not None:
            return "finished"
        return "waiting" if {"__interrupt__", "__resume__"} & self.special.keys() else None

    def runs_again(self, has_ordinary, special):
        """Whether a batch says that a failed task ran again: it wrote something, or it asks. An answer alone is no result."""
        asks = "__interrupt__" in special and "__error__" not in special
        return self.standing() == "failed" and (has_ordinary or asks)

    def rows(self):
        return len(self.special) + (0 if self.writes is None else max(1, len(self.writes)))


class Namespace:
    def __init__(self):
        self.checkpoints = {}
        self.batches = {}
        self.latest = None
        self.clock = 0
        self.greatest = 0

    def is_empty(self):
        return not self.checkpoints and not any(self.batches.values())

    def tick(self):
        self.clock += 1
        return self.clock

    # Ids and the latest.

    def make_id(self, now):
        ticks = max(FIRST_TICKS + now, self.greatest + 1)
        text = f"{ticks:015x}"
        return f"{text[:8]}-{text[8:12]}-6{text[12:]}-8000-{now:012x}"

    def add(self, identifier, checkpoint, is_fork=False):
        if match := UUID6.fullmatch(identifier):
            self.greatest = max(self.greatest, int("".join(match.groups()), 16))
        self.checkpoints[identifier] = checkpoint
        follows = self.latest is None or checkpoint.parent == self.latest or identifier > self.latest
        if is_fork or follows:
            self.latest = identifier
        return identifier

    def at(self, identifier):
        """A checkpoint that is required; the latest by default."""
        identifier = self.latest if identifier is None else identifier
        if identifier not in self.checkpoints:
            raise Refused("P0002")
        return identifier

    def put(self, content, identifier, parent, expected_latest, now):
        there = self.checkpoints.get(identifier)
        same = Checkpoint(None, 0, *content)
        if there and there.content() == same.content():
            return identifier
        if expected_latest is not None and expected_latest != (self.latest or ""):
            raise Refused("40001")
        if there:
            there.next, there.state, there.metadata = content
            return identifier
        if parent is None:
            parent = self.latest
        elif parent == "":
            parent = None
        elif parent not in self.checkpoints:
            raise Refused("P0002")
        return self.add(identifier or self.make_id(now), Checkpoint(parent, self.tick(), *content))

    def fork(self, identifier, graph, now):
        base = self.checkpoints[self.at(identifier)]
        child = Checkpoint(identifier, self.tick(), base.next, graph.carried(base.state), {"source": "fork"})
        return self.add(self.make_id(now), child, is_fork=True)

    def chain(self, identifier):
        while identifier in self.checkpoints:
            yield identifier
            identifier = self.checkpoints[identifier].parent

    # Batches.

    def children(self, identifier):
        """Those that were put as its children, elder first."""
        found = [c for c in self.checkpoints.values() if c.parent == identifier and not c.adopted]
        return sorted(found, key=lambda child: child.at)

    def newest(self, identifier):
        """What the checkpoint itself shows: of each task the newest batch, in the order in which they are folded."""
        batches = {batch.task: batch for batch in self.batches.get(identifier, [])}
        return sorted(batches.values(), key=lambda batch: (batch.path, batch.task))

    def pending(self, identifier):
        folded = self.checkpoints[identifier].folded_into is not None
        return 0 if folded else sum(batch.rows() for batch in self.newest(identifier))

    def put_writes(self, identifier, task, writes, path, on_conflict, graph):
        special = {channel: value for channel, value in writes if channel in SPECIAL}
        stored = graph.writes(writes)
        has_ordinary = not writes or any(channel not in SPECIAL for channel, _ in writes)
        base = self.checkpoints.get(identifier)
        before = next((batch for batch in self.newest(identifier) if batch.task == task), None)
        is_folded = base is not None and base.folded_into is not None
        begins = before is None or any(child.at > before.begun for child in self.children(identifier))
        if before is not None and self.repeats(before, stored if has_ordinary else None, special):
            return 0
        if begins and before is not None and is_folded and on_conflict == "keep" and before.standing() == "finished":
            # What was folded stands; there is no next run of this step.
            stored, begins = before.writes, False
        after = Batch(task, self.clock) if begins else deepcopy(before)
        runs_again = after.runs_again(has_ordinary, special)
        if runs_again:
            # What it wrote and its error go; what it asked and was answered stands until there is something newer.
            del after.special["__error__"]
            after.writes = None
        was_finished = after.standing() == "finished"
        count = 0
        if has_ordinary:
            if after.writes is None or (after.writes != stored and on_conflict == "replace"):
                after.writes, after.path, count = stored, path, len(stored)
            elif after.writes != stored and on_conflict == "error":
                raise Refused("55000" if is_folded else "23505")
        for channel, value in special.items():
            if not (channel == "__error__" and was_finished) and after.special.get(channel, self) != value:
                after.special[channel] = value
                count += 1
        if not begins and after == before and not runs_again:
            return 0
        if is_folded:
            raise Refused("55000")
        logged = self.batches.setdefault(identifier, [])
        if not begins:
            logged.remove(before)
        after.begun = self.tick() if begins else before.begun
        logged.append(after)
        return count

    def repeats(self, batch, stored, special):
        """Whether a task's batch has all this already; an error would not undo it where it has finished."""
        if batch.standing() == "finished":
            special = {channel: value for channel, value in special.items() if channel != "__error__"}
        elif "__error__" not in special and batch.runs_again(stored is not None, special):
            return False
        return stored in (None, batch.writes) and special.items() <= batch.special.items()

    def standings(self, identifier):
        standing = {"finished": {}, "failed": {}, "waiting": {}}
        for batch in self.newest(identifier):
            match batch.standing():
                case "finished":
                    standing["finished"][batch.task] = [[channel, value] for _, channel, value in batch.writes]
                case "failed":
                    standing["failed"][batch.task] = batch.special["__error__"]
                case "waiting":
                    asked = [name for name in reversed(SPECIAL) if name in batch.special]
                    standing["waiting"][batch.task] = [[name, batch.special[name]] for name in asked]
        return standing

    # Folds.

    def fold(self, identifier, tasks, reducers, content, graph, now):
        base_id = self.at(identifier)
        base = self.checkpoints[base_id]
        if identifier is None and base.parent in self.checkpoints and not self.batches.get(base_id):
            # The latest is a fold on which nothing was logged yet: the call is taken for a repeat of the one that made it.
            if self.checkpoints[base.parent].folded_into == base_id:
                return base_id
        if base.folded_into is not None:
            return base.folded_into
        finished = [batch for batch in self.newest(base_id) if batch.standing() == "finished"]
        names = {batch.task for batch in finished}
        if any(task not in names for task in (base.next if tasks is None else tasks)):
            raise Refused("55000")
        if not finished:
            return base_id
        reducers = graph.reducers() | reducers
        state = graph.carried(base.state)
        for batch in finished:
            for idx, channel, value in batch.writes:
                if channel not in CONTROL and graph.persists(channel):
                    place = (base_id, batch.task, idx)
                    state[channel] = reduce(reducers.get(channel, "replace"), state.get(channel, reduce), value, place)
        next_tasks, metadata = content
        made = self.add(self.make_id(now), Checkpoint(base_id, self.tick(), next_tasks, state, metadata))
        base.folded_into = made
        return made

    # Deletions.

    def prune(self, keep):
        order = sorted(self.checkpoints, key=lambda name: (name == self.latest, self.checkpoints[name].at), reverse=True)
        kept = set(order[:keep]) | {name for name in order if self.waits(name)}
        return self.delete(set(order) - kept)

    def waits(self, identifier):
        """Whether it has no child, and waits for the answer to an interrupt."""
        if any(other.parent == identifier for other in self.checkpoints.values()):
            return False
        return any(batch.standing() == "waiting" and "__interrupt__" in batch.special for batch in self.newest(identifier))

    def delete(self, gone):
        nearest = {name: next((other for other in self.chain(name) if other not in gone), None) for name in self.checkpoints}
        consumed = [(self.checkpoints[name].parent, batch) for name in gone for batch in self.consumed(name)]
        for parent, batch in consumed:
            if batch in self.batches.get(parent, []):
                self.batches[parent].remove(batch)
        if self.latest in gone:
            rest = sorted(self.checkpoints.keys() - gone, key=lambda name: self.checkpoints[name].at)
            self.latest = nearest[self.latest] or (rest[-1] if rest else None)
        for name, checkpoint in self.checkpoints.items():
            if checkpoint.folded_into in gone:
                checkpoint.folded_into = None
            if name not in gone and checkpoint.parent in gone:
                checkpoint.parent, checkpoint.adopted = nearest[checkpoint.parent], True
        for name in gone:
            del self.checkpoints[name]
            self.batches.pop(name, None)
        return len(gone)

    def consumed(self, identifier):
        """The batches of its parent between its elder sibling and itself."""
        child = self.checkpoints[identifier]
        if child.adopted:
            return []
        elder = max((other.at for other in self.children(child.parent) if other.at < child.at), default=-1)
        return [batch for batch in self.batches.get(child.parent, []) if elder < batch.begun < child.at]


def reduce(reducer, before, value, place):
    """The next value of a channel. `before` is this function where the channel is absent."""
    absent = before is reduce
    match reducer:
        case "replace":
            return value
        case "sum":
            before = Decimal(0) if absent else before
            if not isinstance(before, Decimal) or not isinstance(value, Decimal):
                raise Refused("22023")
            with localcontext() as context:
                context.prec = 100
                return before + value
        case "merge":
            before = {} if absent else before
            if not isinstance(before, dict) or not isinstance(value, dict):
                raise Refused("22023")
            return before | value
    before = [] if absent else before
    if not isinstance(before, list):
        raise Refused("22023")
    elements = value if isinstance(value, list) else [value]
    if reducer == "append":
        return before + elements
    after = list(before)
    for at, element in enumerate(elements):
        if reducer == "union":
            after += [] if element in after else [element]
            continue
        if not isinstance(element, dict):
            raise Refused("22023")
        if is_ephemeral(element):
            continue
        if "id" not in element:
            element = element | {"id": hashlib.sha1(repr((place, at)).encode()).hexdigest()}
        same = [n for n, message in enumerate(after) if isinstance(message, dict) and message.get("id") == element["id"]]
        if same:
            after[same[0]] = element
        else:
            after.append(element)
    return after
