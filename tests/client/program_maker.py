"""Makes random programs for the comparison with the model: few names and values, so that calls meet each other."""

import json
import random

# The last is most often only copied to.
THREADS = ("@0", "@1", "@2")
NAMESPACES = ("", "sub")
# The one from the future makes the ids that follow it be counted up from it; the others sort before and after made ones.
CHOSEN = ("0a", "0b", "5c", "3fffffff-ffff-6abc-8000-000000000001")
TASKS = ("a", "b", "c")
PATHS = ("", "", "p1", "p2")
GRAPHS = ("@g0", "@g1")
RUNS = ("@r0", "@r1")
REDUCERS = {"m": ["add_messages", "append"], "n": ["sum"], "l": ["append", "union"], "o": ["merge"], "d": ["append"]}
CHANNELS = tuple(REDUCERS)
ON_CONFLICT = ("error", "error", "keep", "replace")
# Above the inline limit; the last is also packed where it is stored.
LONG = ("x" * 1500, "y" * 1500, "z" * 9000)
KINDS = {
    "put": 22, "put_writes": 24, "step": 12, "apply_writes": 10, "fork": 5, "prune": 3, "delete_runs": 5, "copy_thread": 3,
    "delete_thread": 1, "clock": 1, "define_graph": 1, "bind": 2, "append": 9, "rewind": 2, "read": 8,
}  # fmt: skip


def make_program(seed, number, side):
    """`side` is a model to try each call on: so most calls name what is there."""
    return Maker(random.Random(f"{seed}/{number}"), side).program()


class Maker:
    def __init__(self, random, side):
        self.random = random
        self.side = side
        self.calls = []
        self.minutes = 0
        # Half the programs keep to one thread and namespace, where their calls meet more often.
        self.narrow = self.chance(0.5)

    def program(self):
        if self.chance(0.4):
            self.define_graph()
            self.bind()
        if self.chance(0.7):
            self.put()
        kinds = list(KINDS)
        for kind in self.random.choices(kinds, [KINDS[kind] for kind in kinds], k=self.random.randint(8, 30)):
            getattr(self, kind)()
        return self.calls

    # Choices.

    def chance(self, probability):
        return self.random.random() < probability

    def one(self, choices):
        return self.random.choice(choices)

    def some(self, choices, probability=0.5):
        return [choice for choice in choices if self.chance(probability)]

    def maybe(self, probability, make):
        return make() if self.chance(probability) else None

    def thread(self):
        if self.chance(0.05):
            return THREADS[2]
        return self.one(THREADS[:2]) if not self.narrow or self.chance(0.1) else THREADS[0]

    def place(self):
        return self.thread(), self.one(NAMESPACES) if not self.narrow or self.chance(0.1) else NAMESPACES[0]

    def namespace(self, place):
        thread, ns = place
        return self.side.model.namespace(self.side.argument(thread), ns)

    def latest(self, place):
        return self.name_of(self.namespace(place).latest)

    def name_of(self, identifier):
        labels = [("made", label) for label, made in self.side.made.items() if made == identifier]
        return identifier if identifier in CHOSEN else labels[0]

    def checkpoint(self, place):
        """An id, most often of one of the newest checkpoints that are there."""
        there = sorted(self.namespace(place).checkpoints.items(), key=lambda item: item[1].at)
        if not there or self.chance(0.08):
            return self.one(CHOSEN)
        return self.name_of(self.one(there[-3:] if self.chance(0.7) else there)[0])

    def call(self, function, **named):
        """Adds a call; an argument that is None has its default."""
        label = len(self.calls)
        arguments = [(name, value) for name, value in named.items() if value is not None]
        self.calls.append((label, function, arguments))
        return self.side.answer(label, function, arguments)

    # Values, as JSON text or what becomes it.

    def text(self):
        return self.one(LONG) if self.chance(0.15) else self.one(("yes", "no", "hi"))

    def message(self):
        message = {"role": self.one(("user", "assistant")), "content": self.text()}
        if self.chance(0.6):
            message["id"] = self.one("pqr")
        if self.chance(0.12):
            message["ephemeral"] = True
        return message

    def value(self, channel, in_state=False):
        if self.chance(0.04):
            channel = self.one(CHANNELS)
        match channel:
            case "m" if in_state:
                # A list that was put may not have an id twice: what replacing one of them meant would be open.
                messages = [self.message() | {"id": id} for id in self.some("pqr")]
                return [{k: v for k, v in message.items() if k != "id" or self.chance(0.9)} for message in messages]
            case "m":
                return self.message() if self.chance(0.4) else [self.message() for _ in range(self.random.randint(0, 3))]
            case "n":
                return self.one((1, 2, -3, 2.5, 0.1))
            case "l":
                element = lambda: self.one((1, 2, "two", None, {"k": 1}, [1], self.text()))
                if in_state or self.chance(0.6):
                    return [element() for _ in range(self.random.randint(0, 3))]
                return element()
            case "o":
                return {key: self.one((1, 2, None, self.text())) for key in self.some("uvw")}
        return self.text() if self.chance(0.5) else self.one((1, None, [self.text()]))

    def state(self):
        return json.dumps({channel: self.value(channel, in_state=True) for channel in self.some(CHANNELS)})

    def writes(self):
        if self.chance(0.08):
            return "[]"
        writes = []
        for _ in range(self.random.randint(1, 3)):
            if self.chance(0.25):
                channel = self.one(("__error__", "__interrupt__", "__interrupt__", "__resume__", "__scheduled__"))
                writes.append([channel, self.one(("one", "two"))])
            elif self.chance(0.05):
                writes.append([self.one(("__no_writes__", "__return__")), 1])
            else:
                channel = self.one(CHANNELS if self.chance(0.5) else "ln")
                writes.append([channel, self.value(channel) if self.chance(0.6) else 1])
        text = json.dumps(writes)
        # The same by value, in another spelling.
        return text.replace(" 1]", " 10e-1]").replace("two", "tw\\u006f") if self.chance(0.2) else text

    def reducers(self):
        chosen = {channel: self.one(REDUCERS[channel]) for channel in CHANNELS if self.chance(0.7)}
        if self.chance(0.06):
            chosen[self.one(CHANNELS)] = self.one(("add_messages", "append", "sum", "merge", "union", "max"))
        return json.dumps(chosen)

    def metadata(self):
        return json.dumps({"run_id": self.one(RUNS), "n": self.one((1, 2))})

    # Calls.

    def put(self):
        place = self.place()
        identifier = self.maybe(0.55, lambda: self.one(CHOSEN) if self.chance(0.8) else self.checkpoint(place))
        fence = self.maybe(0.15, lambda: "" if self.chance(0.3) else self.checkpoint(place))
        parent = self.maybe(0.35, lambda: "" if self.chance(0.2) else self.checkpoint(place))
        metadata = self.maybe(0.5, self.metadata)
        following = self.maybe(0.7, lambda: self.some(TASKS[:2], 0.6))
        again = [call for call in self.calls if call[1] == "ckpt_put"]
        if again and self.chance(0.1):
            # A client that tries again.
            return self.call("ckpt_put", **dict(self.one(again)[2]))
        return self.call(
            "ckpt_put", thread_id=place[0], state=self.state(), metadata=metadata, next=following, checkpoint_ns=place[1],
            checkpoint_id=identifier, parent_checkpoint_id=parent, expected_latest=fence,
        )  # fmt: skip

    def put_writes(self):
        again = [call for call in self.calls if call[1] == "ckpt_put_writes"]
        if again and self.chance(0.15):
            named = dict(self.one(again)[2]) | {"on_conflict": self.one(ON_CONFLICT)}
            return self.call("ckpt_put_writes", **named)
        thread, ns = place = self.place()
        return self.call(
            "ckpt_put_writes", thread_id=thread, checkpoint_id=self.checkpoint(place), task_id=self.one(TASKS),
            writes=self.writes(), checkpoint_ns=ns, task_path=self.one(PATHS), on_conflict=self.one(ON_CONFLICT),
        )  # fmt: skip

    def step(self):
        """What a worker does: the tasks that run next log what they made, and it is folded."""
        thread, ns = place = self.place()
        namespace = self.namespace(place)
        if namespace.latest is None:
            return self.put()
        base = self.checkpoint(place) if self.chance(0.3) else None
        following = self.side.argument(base) if base else namespace.latest
        tasks = namespace.checkpoints[following].next if following in namespace.checkpoints else []
        for task in tasks or [self.one(TASKS)]:
            self.call(
                "ckpt_put_writes", thread_id=thread, checkpoint_id=base or self.latest(place), task_id=task, writes=self.writes(),
                checkpoint_ns=ns, task_path=self.one(PATHS),
            )  # fmt: skip
        return self.call(
            "ckpt_apply_writes", thread_id=thread, checkpoint_ns=ns, checkpoint_id=base, reducers=self.reducers(),
            next=self.maybe(0.7, lambda: self.some(TASKS[:2])), metadata=self.maybe(0.7, self.metadata),
        )  # fmt: skip

    def apply_writes(self):
        thread, ns = place = self.place()
        checkpoint = self.maybe(0.6, lambda: self.checkpoint(place))
        self.call(
            "ckpt_apply_writes", thread_id=thread, checkpoint_ns=ns, checkpoint_id=checkpoint,
            tasks=self.maybe(0.6, lambda: self.some(TASKS, 0.1)), reducers=self.maybe(0.7, self.reducers),
            next=self.maybe(0.4, lambda: self.some(TASKS)), metadata=self.maybe(0.5, self.metadata),
        )  # fmt: skip

    def fork(self):
        thread, ns = place = self.place()
        self.call("ckpt_fork", thread_id=thread, checkpoint_id=self.checkpoint(place), checkpoint_ns=ns)

    def prune(self):
        self.call("ckpt_prune", thread_ids=self.some(THREADS, 0.7), keep=self.one((1, 1, 2, 3)))

    def delete_runs(self):
        self.call("ckpt_delete_runs", run_ids=[self.one(RUNS)] if self.chance(0.7) else self.some(RUNS, 0.7))

    def copy_thread(self):
        source, target = (self.thread(), THREADS[2]) if self.chance(0.7) else self.random.sample(THREADS, 2)
        self.call("ckpt_copy_thread", thread_id=source, target_thread_id=target)

    def delete_thread(self):
        self.call("ckpt_delete_thread", thread_id=self.thread(), block_for=self.maybe(0.5, lambda: self.one((5, 20))))

    def clock(self):
        self.minutes += self.one((1, 4, 5, 15))
        self.call("clock", minutes=self.minutes)

    def define_graph(self):
        channels = {}
        for channel in self.some(CHANNELS, 0.6):
            declared = channels[channel] = {}
            if self.chance(0.8):
                declared["reducer"] = REDUCERS[channel][0] if self.chance(0.8) else self.one(REDUCERS[channel])
            if self.chance(0.6 if channel == "d" else 0.05):
                declared["persist"] = False
        self.call("ckpt_define_graph", graph=self.one(GRAPHS), channels=json.dumps(channels))

    def bind(self):
        defined = [dict(call[2])["graph"] for call in self.calls if call[1] == "ckpt_define_graph"]
        graph = self.one(defined) if defined and self.chance(0.85) else self.one(GRAPHS)
        self.call("ckpt_bind", thread_id=self.thread(), graph=graph)

    def append(self):
        messages = [self.message() for _ in range(self.random.randint(0, 3))]
        for message in messages:
            if self.chance(0.15):
                message["content"] = None
                message["tool_calls"] = [{"id": self.one("12")}]
            elif self.chance(0.1):
                message["content"] = [{"type": "text", "text": message["content"]}, {"type": "text", "text": "and"}]
        self.call(
            "ckpt_append", thread_id=self.thread(), messages=json.dumps(messages),
            turn=self.maybe(0.4, lambda: self.one(("t1", "t2"))), on_conflict=self.one(ON_CONFLICT),
        )  # fmt: skip

    def rewind(self):
        self.call("ckpt_rewind", thread_id=self.thread(), after_seq=self.random.randint(0, 4))

    def read(self):
        thread, ns = place = self.place()
        named = {"thread_id": thread, "checkpoint_ns": ns}
        checkpoint = self.maybe(0.6, lambda: self.checkpoint(place))
        rows = self.maybe(0.4, lambda: self.random.randint(0, 3))
        match self.random.randint(0, 6):
            case 0:
                self.call("ckpt_latest", **named)
            case 1:
                self.call("ckpt_history", **named, checkpoint_id=checkpoint, max_rows=rows)
            case 2:
                self.call("ckpt_state", **named, checkpoint_id=checkpoint, channels=self.maybe(0.5, lambda: self.some("mn")))
            case 3:
                self.call("ckpt_channel", **named, channel=self.one(CHANNELS), checkpoint_id=checkpoint)
            case 4:
                self.call("ckpt_resume", **named)
            case 5:
                self.call("ckpt_list", **named, filter=self.maybe(0.5, self.metadata), before=checkpoint, max_rows=rows)
            case 6:
                bound = lambda: self.maybe(0.5, lambda: self.random.randint(0, 5))
                self.call("ckpt_messages", thread_id=thread, after=bound(), before=bound(), max_rows=rows)
