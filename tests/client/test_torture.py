"""A short round of tests/torture, and that its checker sees what is wrong."""

import copy
import sys
from pathlib import Path

from support import connect

sys.path.insert(0, str(Path(__file__).parents[1]))

from torture.chaos import Chaos  # noqa: E402
from torture.checker import check  # noqa: E402
from torture.record import ANSWERED, Attempt, Op, Records  # noqa: E402

KILLS = 30
SEED = 1

# What a server would have to lose, keep half, or do twice. Each takes one thing of a thread whose account is exact.
DAMAGE = {
    "a message is lost": "DELETE FROM checkpoint_messages WHERE thread_id LIKE 'log-%' AND seq = 2 RETURNING thread_id",
    "a turn is there twice": """INSERT INTO checkpoint_messages SELECT (jsonb_populate_record(m, jsonb_build_object('seq',
        (SELECT max(seq) + 1 FROM checkpoint_messages), 'msg_id', 'again'))).* FROM checkpoint_messages m
        WHERE thread_id LIKE 'log-%' LIMIT 1 RETURNING thread_id""",
    "a checkpoint is lost": """DELETE FROM checkpoints WHERE ctid = (SELECT ctid FROM checkpoints c WHERE thread_id LIKE 'put-%'
        AND EXISTS (SELECT FROM checkpoints WHERE thread_id = c.thread_id AND parent_checkpoint_id = c.checkpoint_id) LIMIT 1)
        RETURNING thread_id""",
    "a fold has another's state": """UPDATE checkpoints c SET manifest = p.manifest FROM checkpoints p
        WHERE c.thread_id LIKE 'fold-%' AND p.thread_id = c.thread_id AND p.checkpoint_id = c.parent_checkpoint_id
        RETURNING c.thread_id""",
    "a summary is lost": "DELETE FROM checkpoint_summaries WHERE thread_id LIKE 'log-%' RETURNING thread_id",
    "a typed write is lost": "DELETE FROM checkpoint_writes WHERE thread_id LIKE 'typed-%' AND idx = 0 RETURNING thread_id",
}


def first(records, kind, thread):
    acknowledged = (op for op in records.ops.values() if op.acknowledged and op.spec["kind"] == kind)
    return next(op for op in acknowledged if op.spec["thread"].startswith(thread))


def answered(spec, result):
    return Op("forged", spec, [Attempt(1.0, 2.0, ANSWERED)], result)


def forge(records, kind, thread):
    """Another acknowledgement, of what nobody did."""
    forged = copy.deepcopy(records)
    op = first(forged, kind, thread)
    named = {"append": "turn", "put": "id", "writes": "task", "typed": "id"}[kind]
    forged.ops["forged"] = answered(op.spec | {named: "forged"}, op.result)
    return forged


FORGED = [("append", "log"), ("append", "rewound"), ("put", "put"), ("put", "runs"), ("writes", "fold"), ("typed", "typed")]


def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(make_cluster):
    said = []
    cluster = make_cluster().init()
    with Chaos(cluster, KILLS, SEED, said.append, era=6.0) as chaos:
        chaos.run()
        assert chaos.findings == []
        records = Records.below(chaos.settings["records"])
        checker = check(cluster, records)
        assert checker.findings == []
        assert chaos.done.total() == KILLS and records.calls() > 100
        assert checker.counted["attempts without an answer"]
    sees_what_is_wrong(cluster, records)


def sees_what_is_wrong(cluster, records):
    for kind, thread in FORGED:
        findings = check(cluster, forge(records, kind, thread)).findings
        assert any("forged" in finding for finding in findings), f"a forged {kind} in {thread} was not seen"
    for name, damage in DAMAGE.items():
        with connect(cluster.uri()) as connection:
            hit = {row[0] for row in connection.execute(damage).fetchall()}
        assert hit, name
        seen = {finding.split(":")[0] for finding in check(cluster, records).findings}
        assert hit & seen, f"not seen: {name}"
