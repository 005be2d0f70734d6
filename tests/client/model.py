"""The contract's sequential semantics in memory: a method for each function of the extension, with its arguments by their names.
A method gives the answer in parsed form (see programs.py) or raises Refused. Written from the contract alone."""

from copy import deepcopy

from model_log import Log
from model_state import REDUCERS, Graph, Namespace, Refused, is_ephemeral


class Thread:
    def __init__(self, name):
        self.namespaces = {}
        self.log = Log(name)
        self.graph = None
        self.blocked_until = None

    def size(self):
        return sum(len(ns.checkpoints) for ns in self.namespaces.values()) + len(self.log.messages)

    def has_something(self):
        return bool(self.namespaces) or self.log.counter > 0


class Model:
    def __init__(self):
        self.threads = {}
        self.graphs = {}
        self.now = 0
        self.made = 0

    # Threads, namespaces and graphs.

    def thread(self, name):
        return self.threads.get(name) or Thread(name)

    def for_write(self, name):
        thread = self.threads.setdefault(name, Thread(name))
        if not thread.has_something() and thread.blocked_until is not None and self.now < thread.blocked_until:
            raise Refused("55000")
        return thread

    def namespace(self, thread_id, checkpoint_ns):
        return self.thread(thread_id).namespaces.get(checkpoint_ns) or Namespace()

    def namespace_for_write(self, thread_id, checkpoint_ns):
        """The namespace; a new one becomes part of the thread by `store`, when the call has not been refused."""
        return self.for_write(thread_id).namespaces.get(checkpoint_ns) or Namespace()

    def store(self, thread_id, checkpoint_ns, namespace):
        namespaces = self.threads[thread_id].namespaces
        namespaces[checkpoint_ns] = namespace
        if namespace.is_empty():
            del namespaces[checkpoint_ns]

    def graph_of(self, thread_id):
        return self.graphs.get(self.thread(thread_id).graph) or Graph()

    def next_number(self):
        self.made += 1000
        return self.made

    def clock(self, minutes):
        self.now = minutes

    def ckpt_define_graph(self, graph, channels):
        new = Graph(channels)
        if any(thread.graph == graph for thread in self.threads.values()) and not new.takes_over_from(self.graphs[graph]):
            raise Refused("55000")
        self.graphs[graph] = new

    def ckpt_bind(self, thread_id, graph):
        thread = self.for_write(thread_id)
        if graph not in self.graphs:
            raise Refused("P0002")
        if not self.graphs[graph].takes_over_from(self.graph_of(thread_id)):
            raise Refused("55000")
        thread.graph = graph

    # State.

    def ckpt_put(
        self, thread_id, state, metadata=None, next=(), checkpoint_ns="", checkpoint_id=None, parent_checkpoint_id=None,
        expected_latest=None,
    ):  # fmt: skip
        namespace = self.namespace_for_write(thread_id, checkpoint_ns)
        content = (list(next), self.graph_of(thread_id).state(state), metadata or {})
        made = namespace.put(content, checkpoint_id, parent_checkpoint_id, expected_latest, self.next_number())
        self.store(thread_id, checkpoint_ns, namespace)
        return made

    def ckpt_put_writes(self, thread_id, checkpoint_id, task_id, writes, checkpoint_ns="", task_path="", on_conflict="error"):
        namespace = self.namespace_for_write(thread_id, checkpoint_ns)
        stored = namespace.put_writes(checkpoint_id, task_id, writes, task_path, on_conflict, self.graph_of(thread_id))
        self.store(thread_id, checkpoint_ns, namespace)
        return stored

    def ckpt_apply_writes(
        self, thread_id, checkpoint_ns="", checkpoint_id=None, tasks=None, reducers=None, next=(), metadata=None
    ):  # fmt: skip
        if any(reducer not in REDUCERS for reducer in (reducers or {}).values()):
            raise Refused("22023")
        namespace = self.namespace(thread_id, checkpoint_ns)
        content = (list(next), metadata or {})
        graph = self.graph_of(thread_id)
        return namespace.fold(checkpoint_id, tasks, reducers or {}, content, graph, self.next_number())

    def ckpt_fork(self, thread_id, checkpoint_id, checkpoint_ns=""):
        namespace = self.namespace_for_write(thread_id, checkpoint_ns)
        return namespace.fork(checkpoint_id, self.graph_of(thread_id), self.next_number())

    def ckpt_copy_thread(self, thread_id, target_thread_id):
        if thread_id == target_thread_id:
            raise Refused("22023")
        target = self.for_write(target_thread_id)
        if target.has_something():
            raise Refused("55000")
        source = self.thread(thread_id)
        if not source.has_something():
            raise Refused("P0002")
        self.threads[target_thread_id] = copy = deepcopy(source)
        copy.log.names.append(target_thread_id)
        copy.graph = source.graph or target.graph
        copy.blocked_until = None
        return copy.size()

    def ckpt_delete_thread(self, thread_id, block_for=None):
        thread = self.thread(thread_id)
        self.threads[thread_id] = Thread(thread_id)
        until = [self.now + block_for] if block_for else []
        if thread.blocked_until is not None:
            until.append(thread.blocked_until)
        self.threads[thread_id].blocked_until = max(until, default=None)
        return thread.size()

    def ckpt_delete_runs(self, run_ids):
        def of_runs(namespace):
            return {name for name, it in namespace.checkpoints.items() if it.metadata.get("run_id") in run_ids}

        return self.in_namespaces(self.threads, lambda namespace: namespace.delete(of_runs(namespace)))

    def ckpt_prune(self, thread_ids, keep=1):
        return self.in_namespaces(thread_ids, lambda namespace: namespace.prune(keep))

    def in_namespaces(self, thread_ids, delete):
        """How many checkpoints were deleted; a namespace in which nothing is left is gone."""
        deleted = 0
        for thread_id in set(thread_ids):
            for name, namespace in list(self.thread(thread_id).namespaces.items()):
                deleted += delete(namespace)
                self.store(thread_id, name, namespace)
        return deleted

    # Reads of the state.

    def described(self, namespace, name):
        it = namespace.checkpoints[name]
        return (name, it.parent, it.next, list(it.state.items()), it.metadata, namespace.pending(name))

    def ckpt_latest(self, thread_id, checkpoint_ns=""):
        namespace = self.namespace(thread_id, checkpoint_ns)
        return [self.described(namespace, namespace.latest)] if namespace.latest else []

    def ckpt_history(self, thread_id, checkpoint_id=None, checkpoint_ns="", max_rows=None):
        namespace = self.namespace(thread_id, checkpoint_ns)
        chain = namespace.chain(namespace.latest if checkpoint_id is None else checkpoint_id)
        return [self.described(namespace, name) for name in chain][:max_rows]

    def ckpt_list(self, thread_id, checkpoint_ns, filter=None, before=None, max_rows=None):
        namespace = self.namespace(thread_id, checkpoint_ns)
        names = [name for name in sorted(namespace.checkpoints, reverse=True) if before is None or name < before]
        wanted = (filter or {}).items()
        found = [name for name in names if wanted <= namespace.checkpoints[name].metadata.items()]
        return [self.described(namespace, name) for name in found][:max_rows]

    def ckpt_state(self, thread_id, checkpoint_id=None, checkpoint_ns="", channels=None):
        namespace = self.namespace(thread_id, checkpoint_ns)
        state = namespace.checkpoints[namespace.at(checkpoint_id)].state
        return [(name, value) for name, value in state.items() if channels is None or name in channels]

    def ckpt_channel(self, thread_id, channel, checkpoint_id=None, checkpoint_ns=""):
        """A list of the value, or of nothing: so a stored null is not a missing channel."""
        return [value for _, value in self.ckpt_state(thread_id, checkpoint_id, checkpoint_ns, [channel])]

    def ckpt_resume(self, thread_id, checkpoint_ns=""):
        namespace = self.namespace(thread_id, checkpoint_ns)
        if namespace.latest is None:
            return []
        standing = namespace.standings(namespace.latest)
        following = namespace.checkpoints[namespace.latest].next
        todo = [task for task in following if task not in standing["finished"]]
        return [(namespace.latest, following, standing["finished"], standing["failed"], standing["waiting"], todo)]

    def everything(self, thread_id):
        """Of each checkpoint of a thread: what it is, its whole state, and its ancestors."""
        rows = []
        for ns, namespace in self.thread(thread_id).namespaces.items():
            for name, it in namespace.checkpoints.items():
                rows.append((ns, name, it.next, namespace.pending(name), list(it.state.items()), list(namespace.chain(name))))
        return rows

    # The message log.

    def ckpt_append(self, thread_id, messages, turn=None, on_conflict="error"):
        if all(is_ephemeral(message) for message in messages):
            return []
        return self.for_write(thread_id).log.append(messages, turn, on_conflict)

    def ckpt_rewind(self, thread_id, after_seq):
        return self.thread(thread_id).log.rewind(after_seq)

    def ckpt_messages(self, thread_id, after=None, before=None, max_rows=None):
        return self.thread(thread_id).log.rows(after, before, max_rows)
