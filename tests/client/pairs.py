"""Pairs of writing functions in two sessions, step by step: what they may leave behind is what they leave one after the other.

A run has a prefix of its own, which names its threads, its graphs and its runs of an agent: `p` is the thread that both calls
are about, `p>` the copy that a call makes of it, `p<` one that a call copies to it. Large values are noise, so that a byte
from the wrong place shows; several checkpoints share them, so that one freed too early does."""

import difflib
import itertools
import random
import re
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime

import psycopg

from support import DEADLINE, TABLES, wait_until

READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"
ISOLATIONS = [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE]
LOST = "40001"


def noise(seed, length=3000):
    """Letters that are in no id."""
    return "".join(random.Random(seed).choices("GHIJKLMNOPQRSTUVWXYZ", k=length))


NOISE = {name: noise(name) for name in ("old", "mid", "new", "own", "list")}


def state(doc, n, *log):
    """A JSON state, with a channel that each of the two graphs does not keep."""
    items = ", ".join(f'"{item}"' for item in log)
    return f'{{"doc": "<{doc}>", "n": {n}, "log": [{items}], "scratch": "<own>", "extra": "<mid>"}}'


GRAPHS = """
SELECT ckpt_define_graph('{p}/agent', '{"log": {"reducer": "append"}, "n": {"reducer": "sum"}, "scratch": {"persist": false}}');
SELECT ckpt_define_graph('{p}/second', '{"log": {"reducer": "append"}, "n": {"reducer": "sum"}, "extra": {"persist": false}}');
"""

LOG = """[{"id": "m1", "role": "user", "content": "<list>"}, {"id": "m2", "role": "assistant", "content": "<think>x</think>two"},
          {"role": "user", "content": "three"}, {"role": "assistant", "content": "four"},
          {"role": "user", "content": "five"}, {"role": "assistant", "content": "six"},
          {"role": "user", "content": "seven"}, {"role": "assistant", "content": "eight"}]"""

# The job of making a summary was given out, and its time is over: an edit calls it back, and it can be given out again.
FULL = f"""
SELECT ckpt_bind('{{t}}', '{{p}}/agent');
SELECT ckpt_put('{{t}}', '{state("old", 1, "<list>")}', '{{"run_id": "{{p}}/other"}}', checkpoint_id => 'c1');
SELECT ckpt_put_typed('{{t}}', 'b0', '{{"v": 4}}', '{{"doc": 1, "own": 1}}', '{{doc,own}}', '{{json,raw}}',
                      ARRAY['"<old>"', '<own>']::bytea[], parent_checkpoint_id => 'c1');
SELECT ckpt_put('{{t}}', '{state("old", 2, "<list>", "two")}', '{{"run_id": "{{p}}/run"}}', checkpoint_id => 'c2');
SELECT ckpt_put('{{t}}', '{state("mid", 3, "<list>", "<own>")}', '{{"run_id": "{{p}}/other"}}', checkpoint_id => 'c3');
SELECT ckpt_put('{{t}}', '{state("old", 4, "<list>", "two", "four")}', '{{"run_id": "{{p}}/run"}}', '{{a}}',
                checkpoint_id => 'c4');
SELECT ckpt_put_writes('{{t}}', 'c4', 'a', '[["log", ["<own>"]], ["n", 10], ["doc", "<mid>"], ["scratch", "<own>"]]');
SELECT count(*) FROM ckpt_append('{{t}}', '{LOG}');
SELECT ckpt_put_summary('{{t}}', 2, 'two of them');
SELECT count(*) FROM ckpt_summary_due('{{t}}', 1, lease => '1 microsecond');
"""

# What is there when the two calls start, by what they are about.
WORLDS = {"full": FULL.replace("{t}", "{p}"), "empty": "", "source": FULL.replace("{t}", "{p}<")}

# A set-up thread of each kind is made by the functions themselves; the others are its rows under other names. A message
# without an id of its own has one that is made with the thread's name.
RENAMED = {
    "checkpoint_graphs": "'graph', replace(r.graph, t.old, t.new)",
    "checkpoint_threads": "'graph', replace(r.graph, t.old, t.new)",
    "checkpoint_heads": "'graph', replace(r.graph, t.old, t.new)",
    "checkpoints": """'metadata', replace(r.metadata::text, t.old, t.new)::json,
                      'metadata_filter', replace(r.metadata_filter::text, t.old, t.new)::jsonb""",
    "checkpoint_messages": """'msg_id', CASE r.msg_id WHEN msg_id(r.thread_id, r.role, r.message ->> 'content')
                              THEN msg_id(replace(r.thread_id, t.old, t.new), r.role, r.message ->> 'content')
                              ELSE r.msg_id END""",
}
NAMED_BY = {"checkpoint_graphs": "graph"}


@dataclass(frozen=True)
class Function:
    """A call. Where it `begins` a thread, the thread is empty when the two calls start."""

    name: str
    statement: str
    begins: bool = False
    # It begins a namespace or a log where there is none.
    touches: bool = True
    # It begins one in each thread.
    first_touch: bool = False
    # It holds the lock that keeps `p` from being begun.
    holds: bool = False
    # It leaves nothing of the thread.
    empties: bool = False
    # It needs a thread to copy.
    copies: bool = False
    # It is about each thread that has its runs, and locks them in order.
    everywhere: bool = False


def function(name, statement, **more):
    return Function(name, statement, **more)


FUNCTIONS = [
    function("put", f"""ckpt_put('{{t}}', '{state("new", 5, "<list>", "two", "four", "five")}', '{{"run_id": "{{p}}/run"}}')"""),
    function(
        "put chosen",
        f"""ckpt_put('{{t}}', '{state("old", 6, "<list>", "six")}', checkpoint_id => 'c5', parent_checkpoint_id => 'c2',
                     expected_latest => 'c4')""",
    ),
    function("put again", f"""ckpt_put('{{t}}', '{state("new", 7, "<own>")}', next => '{{a}}', checkpoint_id => 'c3')"""),
    function(
        "put_typed",
        """ckpt_put_typed('{t}', 'd1', '{"v": 4}', '{"doc": 1, "own": 1, "scratch": 2}', '{scratch}', '{raw}',
                          ARRAY['<mid>']::bytea[], parent_checkpoint_id => 'b0')""",
    ),
    function("put_writes", """ckpt_put_writes('{t}', 'c4', 'b', '[["log", ["<new>"]], ["n", 20], ["extra", "<old>"]]')"""),
    function(
        "put_writes replace", """ckpt_put_writes('{t}', 'c4', 'a', '[["doc", "<new>"], ["n", 30]]', on_conflict => 'replace')"""
    ),
    function(
        "put_writes_typed",
        """ckpt_put_writes_typed('{t}', 'b0', 'w', '{doc,own}', '{json,raw}', ARRAY['"<old>"', '<own>']::bytea[])""",
    ),
    function("apply_writes", """ckpt_apply_writes('{t}', tasks => '{a}', next => '{a}')"""),
    function("fork", "ckpt_fork('{t}', 'c2')"),
    function("copy from", "ckpt_copy_thread('{t}', '{t}>')", touches=False),
    function("delete", "ckpt_delete_thread('{t}')", touches=False, holds=True, empties=True),
    function("delete and block", "ckpt_delete_thread('{t}', '1 hour')", touches=False, holds=True, empties=True),
    function("delete_runs", "ckpt_delete_runs(ARRAY['{p}/run'])", touches=False, everywhere=True),
    function("prune", "ckpt_prune(ARRAY['{t}'])", touches=False),
    function(
        "define_graph",
        """ckpt_define_graph('{p}/agent', '{"log": {"reducer": "append"}, "n": {}, "doc": {"persist": false}}')""",
        touches=False,
    ),
    function(
        "define_graph reducer",
        """ckpt_define_graph('{p}/second', '{"log": {"reducer": "sum"}, "n": {"reducer": "sum"}}')""",
        touches=False,
    ),
    function("bind", "ckpt_bind('{t}', '{p}/second')", touches=False, holds=True),
    function(
        "append",
        """ckpt_append('{t}', '[{"id": "m2", "role": "assistant", "content": "<think>x</think>two"},
                               {"role": "user", "content": "<new>"}]')""",
    ),
    function(
        "append replace",
        """ckpt_append('{t}', '[{"id": "m2", "role": "user", "content": "<own>"},
                               {"role": "assistant", "content": "an edit"}]', on_conflict => 'replace')""",
    ),
    function("rewind", "ckpt_rewind('{t}', 3)", touches=False),
    function("summary_due", "ckpt_summary_due('{t}', 1)", touches=False),
    function("put_summary", "ckpt_put_summary('{t}', 4, 'four of them', edits => 0)", touches=False),
    function(
        "first put in a namespace",
        f"""ckpt_put('{{t}}', '{state("old", 8, "<list>")}', checkpoint_id => 'c2', checkpoint_ns => 'sub')""",
        first_touch=True,
    ),
    function(
        "first put_writes in a namespace",
        """ckpt_put_writes('{t}', 'c2', 'a', '[["log", ["<new>"]], ["scratch", "<own>"]]', checkpoint_ns => 'sub')""",
        first_touch=True,
    ),
    function(
        "first put",
        f"""ckpt_put('{{t}}', '{state("old", 9, "<list>")}', '{{"run_id": "{{p}}/run"}}', '{{a}}', checkpoint_id => 'c2')""",
        begins=True,
        first_touch=True,
    ),
    function(
        "first put_writes",
        """ckpt_put_writes('{t}', 'c2', 'a', '[["log", ["<new>"]], ["doc", "<old>"], ["scratch", "<own>"]]')""",
        begins=True,
        first_touch=True,
    ),
    function("first append", f"""ckpt_append('{{t}}', '{LOG}')""", begins=True, first_touch=True),
    function("copy to", "ckpt_copy_thread('{t}<', '{t}')", begins=True, touches=False, holds=True, copies=True),
]
BY_NAME = {function.name: function for function in FUNCTIONS}

STATE_TABLES = TABLES + ("checkpoint_threads", "checkpoint_graphs")
STOCK = 30

INTERLEAVINGS = ["A commits", "B's snapshot first", "A rolls back"]

# Rows (part, text) of all that can be read, times left out.
DUMP = """
WITH root AS (SELECT id FROM unnest(%(threads)s::text[]) AS t (id)),
thread AS (SELECT id, ns FROM root, unnest(%(namespaces)s::text[]) AS ns),
listed AS (SELECT l.* FROM root, ckpt_list(root.id) WITH ORDINALITY AS l (thread_id, checkpoint_ns, checkpoint_id,
    parent_checkpoint_id, next, channels, metadata, pending_writes, created_at, number)),
typed AS (SELECT root.id, g.number, g.kind, g.checkpoint_ns, g.checkpoint_id, g.checkpoint IS NULL AS is_json,
        jsonb_strip_nulls(to_jsonb(g) - '{created_at,value,number}'::text[]) AS shown, encode(g.value, 'escape') AS value
    FROM root, ckpt_list_typed(root.id) WITH ORDINALITY AS g (kind, thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
        checkpoint, metadata, created_at, task_id, task_path, idx, channel, version, value_type, value, number))
SELECT * FROM (
    SELECT 'list', concat_ws(' ', thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, next, channels, metadata,
                             pending_writes)
        FROM listed ORDER BY thread_id, number) AS a
UNION ALL
SELECT * FROM (
    SELECT 'history', concat_ws(' ', id, ns, string_agg(checkpoint_id, ' ' ORDER BY number))
        FROM thread, ckpt_history(id, checkpoint_ns => ns) WITH ORDINALITY AS h (thread_id, checkpoint_ns, checkpoint_id,
            parent_checkpoint_id, next, channels, metadata, pending_writes, created_at, number)
        GROUP BY id, ns ORDER BY id, ns) AS b
UNION ALL
SELECT * FROM (
    SELECT 'state', concat_ws(' ', id, checkpoint_ns, checkpoint_id, ckpt_state(id, checkpoint_id, checkpoint_ns))
        FROM typed WHERE kind = 'checkpoint' AND is_json ORDER BY id, number) AS c
UNION ALL
SELECT * FROM (SELECT 'typed', concat_ws(' ', shown, value) FROM typed ORDER BY id, number) AS d
UNION ALL
SELECT * FROM (SELECT 'resume', concat_ws(' ', id, ns, r::text) FROM thread, ckpt_resume(id, ns) AS r ORDER BY id, ns) AS e
UNION ALL
SELECT * FROM (SELECT 'messages', concat_ws(' ', id, m.seq, m.msg_id, m.role, m.content, m.message, m.turn, m.tokens)
        FROM root, ckpt_messages(id) AS m ORDER BY id, m.seq) AS f
UNION ALL
SELECT * FROM (SELECT 'window', concat_ws(' ', id, w::text) FROM root, ckpt_window(id, 1) AS w ORDER BY id, w.ordinal) AS g
UNION ALL
SELECT * FROM (SELECT 'log', concat_ws(' ', thread_id, last_seq, message_count, edits, lease_seq, lease_until IS NULL,
                                       copied_from)
        FROM checkpoint_logs WHERE thread_id IN (SELECT id FROM root) ORDER BY thread_id) AS h
UNION ALL
SELECT * FROM (SELECT 'summaries', concat_ws(' ', thread_id, seq, message_count, summary, expires_at)
        FROM checkpoint_summaries WHERE thread_id IN (SELECT id FROM root) ORDER BY thread_id, seq) AS i
UNION ALL
SELECT * FROM (SELECT 'heads', concat_ws(' ', thread_id, checkpoint_ns, latest_id, graph)
        FROM checkpoint_heads WHERE thread_id IN (SELECT id FROM root) ORDER BY thread_id, checkpoint_ns) AS j
UNION ALL
SELECT * FROM (SELECT 'values', concat_ws(' ', thread_id, checkpoint_ns, count(*))
        FROM checkpoint_blobs WHERE thread_id IN (SELECT id FROM root)
        GROUP BY thread_id, checkpoint_ns ORDER BY thread_id, checkpoint_ns) AS k
UNION ALL
SELECT * FROM (SELECT 'graph', concat_ws(' ', graph, channels) FROM checkpoint_graphs
        WHERE graph = ANY (%(graphs)s) ORDER BY graph) AS l
UNION ALL
SELECT * FROM (SELECT 'thread', concat_ws(' ', thread_id, graph, blocked_until IS NOT NULL)
        FROM checkpoint_threads WHERE thread_id IN (SELECT id FROM root) ORDER BY thread_id) AS m
"""

GENERATED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{40}\b")


class Failure(str):
    """The SQLSTATE of a call that was refused."""


@dataclass(frozen=True)
class Outcome:
    """What the two calls gave, and all that can be read afterwards; generated ids are numbered as they appear."""

    text: str

    @staticmethod
    def of(prefix, first, second, dump):
        text = "\n".join([f"A: {first}", f"B: {second}", *(" ".join(row) for row in dump)])
        text = text.replace(prefix, "p")
        for name, value in NOISE.items():
            text = text.replace(value, f"<{name}>")
        numbers = {}
        return Outcome(GENERATED.sub(lambda found: f"#{numbers.setdefault(found[0], len(numbers) + 1)}", text))

    def lines(self):
        return self.text.split("\n")


class Session:
    """A connection whose calls can be left waiting."""

    def __init__(self, connection):
        self.connection = connection
        self.pid = connection.info.backend_pid
        self.pool = ThreadPoolExecutor(1)
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET jit = off")
        # A lock that nobody gives back is a failure, not a test that hangs.
        connection.execute(f"SET statement_timeout = '{DEADLINE}s'")

    def call(self, statement):
        """The rows of the last of some statements, or the SQLSTATE of a refusal."""
        try:
            cursor = self.connection.execute(statement)
            while cursor.nextset():
                pass
            rows = cursor.fetchall() if cursor.description else []
            return [tuple(value for value in row if not isinstance(value, datetime)) for row in rows]
        except psycopg.Error as error:
            return Failure(error.sqlstate)

    def begin(self, isolation, statement="SELECT 1"):
        return self.call(f"BEGIN ISOLATION LEVEL {isolation}; {statement}")

    def end(self, result, how="COMMIT"):
        """The result of a call once its transaction has ended, which may be where it turns out to be one too many."""
        ended = self.call(how)
        return ended if isinstance(ended, Failure) else result

    def close(self):
        self.pool.shutdown()
        self.connection.close()


class Pairs:
    """Runs pairs over a few connections that are kept open."""

    def __init__(self, connect):
        self.sessions = [Session(connect()) for _ in range(5)]
        self.a, self.b, self.observer, self.reader, self.holder = self.sessions
        self.reader.call("SET plan_cache_mode = force_generic_plan")
        self.numbers = itertools.count(1)
        self.serial, self.found = {}, {}

    def close(self):
        for session in self.sessions:
            session.close()

    # Setting up and looking.

    def start(self):
        """Throws away what earlier runs left."""
        self.must(f"TRUNCATE {', '.join(STATE_TABLES)}")
        for world, statements in WORLDS.items():
            self.must(f"BEGIN; {filled(GRAPHS + statements, template(world))}; COMMIT")
        self.stock = {world: [] for world in WORLDS}

    def new_prefix(self, world):
        """The prefix of threads that are set up and that no run has used."""
        if not self.stock[world]:
            self.stock[world] = [f"pair-{next(self.numbers):06}-" for _ in range(STOCK)]
            statements = [copy_of_rows(table, template(world), self.stock[world]) for table in STATE_TABLES]
            self.must(f"BEGIN; {'; '.join(statements)}; COMMIT")
        return self.stock[world].pop()

    def look(self, a, b, prefix):
        """Reads all that these two can have changed, while the next pair runs: gives the rows later."""
        statements = a.statement + b.statement
        looked_at = {
            "threads": [prefix + end for end in ("", ">", "<") if not end or "{t}" + end in statements],
            "namespaces": [ns for ns in ("", "sub") if f"'{ns}'" in statements or not ns],
            "graphs": [f"{prefix}/{name}" for name in ("agent", "second")],
        }
        return self.reader.pool.submit(lambda: self.reader.connection.execute(DUMP, looked_at, prepare=True).fetchall())

    def must(self, statements, what="setting up"):
        done = self.observer.call(statements)
        assert not isinstance(done, Failure), f"{what}: {done}"
        return done

    # One after the other.

    def in_order(self, a, b, order):
        """The outcome of one after the other, `AB` or `BA`; or of one alone, beside which the other one has lost, or of none."""
        key = (a.name, b.name, order)
        if key not in self.serial:
            prefix, results, found = self.found_after([{"A": a, "B": b}[who] for who in order], a, b)
            results = dict(zip(order, results, strict=True))
            self.serial[key] = Outcome.of(prefix, results.get("A", LOST), results.get("B", LOST), found)
        return self.serial[key]

    def found_after(self, calls, a, b):
        # It does not matter which of the two is called A, nor beside which one the other is alone.
        key = (world_of(a, b), *(call.name for call in calls))
        if key not in self.found:
            prefix = self.new_prefix(world_of(a, b))
            results = [self.a.call(called(call, prefix)) for call in calls]
            self.found[key] = prefix, results, self.look(a, b, prefix).result(DEADLINE)
        return self.found[key]

    # Step by step.

    def run(self, a, b, isolation, interleaving):
        """Runs a pair: its prefix, the two results, and later what is left."""
        prefix = self.new_prefix(world_of(a, b))
        call_a, call_b = called(a, prefix), called(b, prefix)
        if interleaving == "B's snapshot first":
            self.b.begin(isolation)
            first = self.a.end(self.a.begin(isolation, call_a))
            second = self.b.end(self.b.call(call_b))
            return prefix, first, second, self.look(a, b, prefix)
        first = self.a.begin(isolation, call_a)
        later = self.b.pool.submit(self.b.begin, isolation, call_b)
        self.waits(self.b, later)
        if interleaving == "A rolls back":
            self.a.call("ROLLBACK")
            first = LOST
        else:
            first = self.a.end(first)
        second = self.b.end(later.result(DEADLINE))
        return prefix, first, second, self.look(a, b, prefix)

    def run_stopped(self, a, b, table):
        """The same, where A is stopped when it comes to change a table, and B begins then; None if A does not change that."""
        prefix = self.new_prefix(world_of(a, b))
        self.holder.call(f"BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE")
        first = self.a.pool.submit(self.a.call, called(a, prefix))
        stopped = self.waits(self.a, first)
        if stopped:
            second = self.b.pool.submit(self.b.call, called(b, prefix))
            self.waits(self.b, second)
        self.holder.call("COMMIT")
        first = first.result(DEADLINE)
        return (prefix, first, second.result(DEADLINE), self.look(a, b, prefix)) if stopped else None

    def waits(self, session, later):
        """Whether a call waits for another session, once it does or has ended."""

        def ends_or_waits():
            # Most calls are quick: the lock table is asked about those that are not.
            if wait([later], timeout=0.002).done:
                return True
            return self.must(f"SELECT 1 WHERE pg_catalog.cardinality(pg_catalog.pg_blocking_pids({session.pid})) > 0", "asking")

        wait_until("a call ends or waits", ends_or_waits)
        return not later.done()

    def allowed(self, a, b, isolation, interleaving):
        """The outcomes that may be, by what they are."""
        if interleaving == "A rolls back":
            orders = {"B alone": "B"} | ({"neither": ""} if kept_away(b, a) else {})
        else:
            orders = {"A, B": "AB", "B, A": "BA"}
            if isolation != READ_COMMITTED or kept_away(b, a):
                orders |= {"A alone": "A", "B alone": "B"}
            elif kept_away(a, b) and interleaving not in INTERLEAVINGS:
                orders |= {"B alone": "B"}
        return {name: self.in_order(a, b, order) for name, order in orders.items()}

    def problems(self, a, others, isolation, interleavings):
        """Runs a function with each of the others; how the outcomes differ from those that may be."""
        ways = [(a, b, isolation, interleaving) for b in others for interleaving in interleavings]
        return self.judged((way, self.run(*way)) for way in ways)

    def problems_midway(self, a, others, table):
        """The same, where A is stopped midway."""
        ways = [(a, b, READ_COMMITTED, f"A stopped at {table}") for b in others]
        return self.judged((way, self.run_stopped(a, way[1], table)) for way in ways)

    def judged(self, runs):
        # All of them, before the first is looked at.
        runs = [(way, run) for way, run in runs if run]
        found = [self.judge(*way, *run) for way, run in runs]
        return [problem for problem in found if problem]

    def judge(self, a, b, isolation, interleaving, prefix, first, second, later):
        heading = f"A = {a.name}, B = {b.name}, {isolation}, {interleaving}:"
        try:
            got = Outcome.of(prefix, first, second, later.result(DEADLINE))
        except psycopg.Error as error:
            return f"{heading} A gave {first}, B {second}, and what is left cannot be read: {error}"
        allowed = self.allowed(a, b, isolation, interleaving)
        if got in allowed.values():
            return None
        differences = []
        for name, outcome in allowed.items():
            lines = difflib.unified_diff(outcome.lines(), got.lines(), name, "got", n=0, lineterm="")
            differences.append([line for line in lines if not line.startswith("@@")])
        # The nearest is enough, and what the others say of the results.
        nearest = min(differences, key=len)
        results = [f"{name} gives: {' '.join(outcome.lines()[:2])}" for name, outcome in allowed.items()]
        return "\n".join([heading, *results, *nearest])


def kept_away(one, other):
    """Whether a call may get 40001 also under READ COMMITTED. Who begins a namespace or a log while somebody holds the lock that
    keeps a thread from being begun does not wait for it with a row that he has made. Who has locked threads by their runs, and finds
    these runs in a copy that sorts before them, cannot lock that one without leaving the order."""
    begins = one.first_touch or one.touches and (one.begins or other.begins or other.empties)
    return begins and other.holds or one.everywhere and other.copies


def world_of(a, b):
    if not (a.begins or b.begins):
        return "full"
    return "source" if a.copies or b.copies else "empty"


def template(world):
    return f"pair-{world:-<7}"


def copy_of_rows(table, old, new):
    name = NAMED_BY.get(table, "thread_id")
    changed = f"'{name}', replace(r.{name}, t.old, t.new), {RENAMED.get(table, '')}".rstrip(", ")
    return f"""INSERT INTO {table} SELECT n.*
               FROM {table} AS r, (SELECT '{old}' AS old, unnest('{{{','.join(new)}}}'::text[]) AS new) AS t,
                   jsonb_populate_record(r, jsonb_build_object({changed})) AS n
               WHERE starts_with(r.{name}, t.old)"""


def filled(statements, prefix):
    text = statements.replace("{p}", prefix)
    for name, value in NOISE.items():
        text = text.replace(f"<{name}>", value)
    return text


def called(function, prefix):
    return f"SELECT * FROM {filled(function.statement.replace('{t}', '{p}'), prefix)}"
