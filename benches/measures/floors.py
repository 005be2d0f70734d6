"""Small writes against the floor: pgbench, one client, prepared statements, short runs of both in turn."""

import statistics

from ..arms.ours import Ours
from ..prose import Prose
from ..results import Results, progress
from ..server import Script, pgbench
from ..settings import SEED, Bench

SECTION = "floors"
DATABASE = "floors"
THREADS = 8

TABLES = """
CREATE TABLE floor_states (
    thread_id text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    state json NOT NULL,
    metadata json NOT NULL,
    PRIMARY KEY (thread_id, id)
);
CREATE TABLE floor_messages (
    thread_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    message json NOT NULL,
    PRIMARY KEY (thread_id, seq)
)
"""

# What a client does on its side, in both scripts: another state each time, in one of a handful of threads.
NEXT = f"\\set n :n + 1\n\\set t :n % {THREADS}\n"
THREAD = "'agent-' || :t"
STATE = """('{"turn": ' || :n || ', "cost": 0.00213, "user": "ann", "language": "en", "topic": "travel", "approved": false}')::json"""


def put_scripts() -> tuple[Script, Script]:
    ours = f"{NEXT}SELECT ckpt_put({THREAD}, {STATE});\n"
    floor = f"{NEXT}INSERT INTO floor_states VALUES ({THREAD}, :n, {STATE}, '{{}}');\n"
    return Script("ckpt_put", ours), Script("INSERT of a row", floor)


def append_scripts() -> tuple[Script, Script]:
    prose = Prose(f"{SEED} floors")
    user, assistant = prose.text(600), prose.text(600)
    first = f"""'{{"role": "user", "content": "' || :n || ' {user}"}}'"""
    second = f"""'{{"role": "assistant", "content": "' || :n || ' {assistant}"}}'"""
    ours = f"{NEXT}SELECT seq, msg_id, inserted FROM ckpt_append({THREAD}, ('[' || {first} || ', ' || {second} || ']')::json);\n"
    rows = f"({THREAD}, 2 * :n, ({first})::json), ({THREAD}, 2 * :n + 1, ({second})::json)"
    floor = f"{NEXT}INSERT INTO floor_messages VALUES {rows};\n"
    return Script("ckpt_append", ours), Script("INSERT of two rows", floor)


def measure(bench: Bench, results: Results) -> None:
    progress(f"ckpt_put and ckpt_append against an INSERT by pgbench, {bench.size.rounds} rounds each")
    arm = Ours.make(bench.server, "ours", DATABASE)
    for statement in TABLES.split(";"):
        arm.connection.execute(statement)
    # The threads are there already: what is measured is how they go on.
    arm.connection.execute("SELECT ckpt_put('agent-' || t, '{}') FROM generate_series(0, %s) AS t", (THREADS - 1,))
    greeting = '[{"role": "system", "content": "Be brief."}]'
    append = "SELECT count(*) FROM generate_series(0, %s) AS t, ckpt_append('agent-' || t, %s)"
    arm.connection.execute(append, (THREADS - 1, greeting))
    arm.close()
    compare(bench, results, SECTION, DATABASE, "put_small_floor", *put_scripts())
    compare(bench, results, SECTION, DATABASE, "append_floor", *append_scripts())
    bench.server.drop_database(DATABASE)


def compare(bench: Bench, results: Results, section: str, database: str, name: str, ours: Script, floor: Script) -> None:
    """The median of the ratios of neighbouring runs: what slows the machine down for seconds slows both."""
    latencies: dict[str, list[float]] = {ours.name: [], floor.name: []}
    for at in range(bench.size.rounds):
        # Whoever was second is first in the next round.
        pair = (ours, floor) if at % 2 else (floor, ours)
        for script in pair:
            first = (at + 1) * 10_000_000
            latencies[script.name].append(pgbench(bench.server, database, script, bench.size.round_seconds, first))
    for script, microseconds in latencies.items():
        results.times(section, script, (value / 1e6 for value in microseconds))
    ratios = [ours_time / floor_time for ours_time, floor_time in zip(latencies[ours.name], latencies[floor.name])]
    results.ratio(name, statistics.median(ratios), 1.0)
