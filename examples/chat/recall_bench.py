#!/usr/bin/env python3
"""What the recall costs that the chat does not do: facts of the user, looked up for every request and put into the prompt.

    recall_bench.py --uri URI [--schema SCHEMA] [--facts 1000 10000 100000] [--per-user N] [--rounds N]

Scores the facts of a user by topic (words shared with the question) and recency (halved every 60 days), takes the best ten, and
compares a request that loads the window alone with one that does both. Makes a schema chat_bench and threads named
chat-bench/..., and removes them at the end. The exit status is 0 if it could measure, 1 if the two ways to recall disagree,
and 2 if it could not run.
"""

import argparse
import math
import random
import statistics
import sys
import time

import psycopg

import inspection
from memory import Memory, said
from report import aligned

THREADS, TURNS = 50, 50  # what the windows are read from
WORDS = 8  # of a fact and of a question, without stop words

SETUP = """
DROP SCHEMA IF EXISTS chat_bench CASCADE;
CREATE SCHEMA chat_bench;
CREATE TABLE chat_bench.facts (
    fact_id    bigint PRIMARY KEY,
    user_id    int NOT NULL,
    fact       text NOT NULL,
    words      text[] NOT NULL,  -- of the fact, each once
    user_words text[] NOT NULL,  -- the same with the user before each, so that one index finds both
    created_at timestamptz NOT NULL
);
CREATE INDEX facts_by_user ON chat_bench.facts (user_id);
CREATE INDEX facts_by_topic ON chat_bench.facts USING gin (user_words) WITH (fastupdate = off);
"""

# Facts come in the order of time, so those of one user are spread over the table as they are in life. The words are as frequent
# as in prose without its stop words: the word of rank r is said in proportion to 1 / r.
FILL = """
INSERT INTO chat_bench.facts
SELECT n, user_id, array_to_string(words, ' '), words, ARRAY(SELECT user_id || ':' || w FROM unnest(words) AS w),
       now() - interval '1 year' * (1 - n::float8 / %(facts)s)
FROM (SELECT n, 1 + floor(random() * %(users)s)::int AS user_id,
             ARRAY(SELECT DISTINCT 'word' || floor(20 * exp(random() * ln(150.0::float8)))::int
                   FROM generate_series(1, %(words)s + 0 * n)) AS words
      FROM generate_series(1, %(facts)s) AS n) AS new
"""

RECALL = """
SELECT fact,
       (SELECT count(*) FROM unnest(f.words) AS w WHERE w = ANY (%(words)s::text[]))
       * exp(-extract(epoch FROM now() - f.created_at)::float8 / 86400 / 60 * ln(2.0::float8)) AS score
FROM chat_bench.facts AS f
WHERE {}
ORDER BY score DESC LIMIT 10
"""

# Each with its index: all facts of the user are scored, or only those that share a word, which are those above zero.
WAYS = {
    "by user": ("facts_by_user", RECALL.format("f.user_id = %(user)s")),
    "by topic": ("facts_by_topic", RECALL.format("f.user_words && %(user_words)s::text[]")),
}

HEAD = ["facts", "per user", "match", "recall", "window", "p95", "recall", "p95", "both", "p95", "both/window", "index, used"]


class Bench:
    def __init__(self, conn, memory, dice):
        self.conn = conn
        self.memory = memory
        self.dice = dice
        self.users = 1
        self.indexes = {}  # of each way the index, and how often the planner chose it
        documents = "\n".join(f"[{at}] {self.prose(60)}" for at in range(1, 6))
        self.preamble = [said("system", "Answer from the documents and cite them."), said("system", documents)]

    def word(self):
        return f"word{int(20 * math.exp(self.dice.random() * math.log(150)))}"

    def prose(self, words):
        return " ".join(self.word() for _ in range(words))

    def make_threads(self):
        for at in range(THREADS):
            turns = [(said("user", self.prose(12)), said("assistant", self.prose(60) + " [1].")) for _ in range(TURNS)]
            self.memory.append(f"chat-bench/{at}", [message for turn in turns for message in turn], turn="made")

    def make_facts(self, facts, per_user):
        """By default as many facts per user as there are users, so that both grow with the table."""
        self.users = max(1, round(facts / per_user if per_user else math.sqrt(facts)))
        self.conn.execute("TRUNCATE chat_bench.facts")
        with self.conn.transaction():
            self.conn.execute("SELECT setseed(0.5)")
            self.conn.execute(FILL, {"facts": facts, "users": self.users, "words": WORDS})
        self.conn.execute("VACUUM (ANALYZE) chat_bench.facts")

    def question(self):
        user, words = self.dice.randint(1, self.users), sorted({self.word() for _ in range(WORDS)})
        return {"user": user, "words": words, "user_words": [f"{user}:{word}" for word in words]}

    def window(self, question):
        thread = f"chat-bench/{self.dice.randrange(THREADS)}"
        self.memory.load({"thread_id": thread}, said("user", " ".join(question["words"])), self.preamble)

    def recall(self, way, question):
        return self.conn.execute(WAYS[way][1], question, prepare=True).fetchall()

    def faults(self, rounds):
        """Where the two ways to recall do not find the same."""
        for _ in range(rounds):
            question = self.question()
            with self.conn.transaction():  # in which now() is the same for both
                scores = [[score for _, score in self.recall(way, question) if score > 0] for way in WAYS]
            if scores[0] != scores[1]:
                yield f"for {question} they score {scores}"

    def matching(self, rounds):
        """How many facts of a user share a word with a question."""
        query = "SELECT count(*) FROM chat_bench.facts WHERE user_words && %(user_words)s::text[]"
        return statistics.mean(self.conn.execute(query, self.question()).fetchone()[0] for _ in range(rounds))

    def index_scans(self):
        self.conn.execute("SELECT pg_stat_force_next_flush()")
        query = "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'chat_bench'"
        return dict(self.conn.execute(query).fetchall())

    def measure(self, rounds):
        """Milliseconds of each arm; in each round all of them in another order, each with a question of its own."""
        arms = {"window": (self.window,)}
        for way in WAYS:
            arms[way] = (lambda question, way=way: self.recall(way, question),)
            arms["window + " + way] = arms["window"] + arms[way]
        taken = {arm: [] for arm in arms}
        scans = self.index_scans()
        for number in range(-(rounds // 10), rounds):  # the first ones are to warm up
            for arm, calls in self.dice.sample(sorted(arms.items()), len(arms)):
                question = self.question()
                begin = time.perf_counter()
                for call in calls:
                    call(question)
                if number >= 0:
                    taken[arm].append((time.perf_counter() - begin) * 1000)
        calls = 2 * (rounds + rounds // 10)
        for way, (index, _) in WAYS.items():
            used = (self.index_scans()[index] - scans[index]) / calls
            self.indexes[way] = f"{index}, {used:.0%}"
        return {arm: (statistics.median(times), statistics.quantiles(times, n=20)[-1]) for arm, times in taken.items()}


def conclusion(results):
    """What the figures say, for or against recall on every request. `results`: facts -> arm -> (median, p95)."""
    largest = max(results)
    last = results[largest]
    better = min(WAYS, key=lambda way: last[way][0])
    factor = {facts: arms["window + " + better][0] / arms["window"][0] for facts, arms in results.items()}
    yield (
        f"At {largest:,} facts the better way is recall {better}: a request takes {last['window + ' + better][0]:.2f} ms with it and"
        f" {last['window'][0]:.2f} ms without, {factor[largest]:.2f} times."
    )
    doubled = [facts for facts in sorted(factor) if factor[facts] >= 2]
    if doubled:
        below = ", and below that it does not" if doubled[0] > min(factor) else ""
        yield f"From {doubled[0]:,} facts on it at least doubles the time of a request in the database{below}."
        yield "By that measure it is right to leave it out there."
    elif factor[largest] >= 1.2:
        yield "It costs a good part of a request's time in the database, but at no size doubles it: it must earn that."
    else:
        yield "It adds less than a fifth to a request's time in the database: time is no reason to leave it out."
    other = max(WAYS, key=lambda way: last[way][0])
    yield f"The other way, recall {other}, it is {last['window + ' + other][0] / last['window'][0]:.2f} times."
    worst = max(arms[way][1] for arms in results.values() for way in WAYS)
    reached = "is reached" if worst >= 100 else "is not reached"
    yield f"100 ms for the recall alone {reached}: the slowest p95 is {worst:.1f} ms."


def main():
    parser = argparse.ArgumentParser(description="Measures what recalling facts on every request would cost.")
    parser.add_argument("--uri", required=True, help="connection URI of a database with the extension checkpointer")
    parser.add_argument("--schema", help="the schema of the extension, if it is not on the search_path")
    parser.add_argument("--facts", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="sizes of the table of facts")
    parser.add_argument("--per-user", type=int, metavar="N", help="facts of a user (default: as many as there are users)")
    parser.add_argument("--rounds", type=int, default=300, help="requests measured of each kind and size")
    options = parser.parse_args()
    if min(options.facts) < 1 or options.rounds < 2 or (options.per_user or 1) < 1:
        parser.error("--facts and --per-user must be positive, and --rounds at least 2")
    dice = random.Random(7)
    try:
        conn = psycopg.connect(options.uri, autocommit=True, application_name="chat demo, recall bench")
        versions, problem = inspection.find_extension(conn, options.schema)
        if problem:
            print(f"nothing was measured: {problem}", file=sys.stderr)
            return 2
        memory = Memory(conn, options.schema)
        bench = Bench(conn, memory, dice)
        remove(conn, memory)
        conn.execute(SETUP)
        bench.make_threads()
    except psycopg.Error as error:
        print(f"nothing was measured: {error}", file=sys.stderr)
        return 2
    results, rows = {}, []
    try:
        for facts in sorted(options.facts):
            print(f"{facts:,} facts ...", file=sys.stderr, flush=True)
            bench.make_facts(facts, options.per_user)
            if faults := list(bench.faults(20)):
                print("\n".join(faults), file=sys.stderr)
                return 1
            matching = bench.matching(50)
            arms = results[facts] = bench.measure(options.rounds)
            for way in WAYS:
                both = arms["window + " + way]
                figures = [f"{value:.2f}" for arm in (arms["window"], arms[way], both) for value in arm]
                sizes = [f"{size:,.0f}" for size in (facts, facts / bench.users, matching)]
                rows.append([*sizes, way, *figures, f"{both[0] / arms['window'][0]:.2f}", bench.indexes[way]])
    finally:
        remove(conn, memory)
    print(f"{versions}; milliseconds, median and p95, as a client sees them:\n")
    print(aligned(HEAD, rows))
    print("", *conclusion(results), sep="\n")
    return 0


def remove(conn, memory):
    conn.execute("DROP SCHEMA IF EXISTS chat_bench CASCADE")
    for at in range(THREADS):
        memory.delete(f"chat-bench/{at}")


if __name__ == "__main__":
    sys.exit(main())
