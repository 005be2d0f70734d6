"""What a careful developer would write by hand: the whole state in one row of an lz4 column."""

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg.types.json import Json

from ..server import Server, connect, disk_of, vacuum
from ..state import Turn

TABLES = ("agent_states", "agent_writes")

SCHEMA = """
CREATE TABLE agent_states (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    metadata jsonb NOT NULL,
    type text NOT NULL,
    state bytea COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_id)
);
CREATE TABLE agent_writes (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    idx int NOT NULL,
    channel text NOT NULL,
    type text NOT NULL,
    value bytea COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_id, task_id, idx)
)
"""

PUT = "INSERT INTO agent_states VALUES (%s, %s, %s, %s, %s, %b)"
PUT_WRITES = """
INSERT INTO agent_writes
SELECT %s, %s, %s, idx, channel, type, value
FROM unnest(%s::text[], %s::text[], %b::bytea[]) WITH ORDINALITY AS new (channel, type, value, idx)
"""
GET = "SELECT type, state FROM agent_states WHERE thread_id = %s ORDER BY checkpoint_id DESC LIMIT 1"


class ByHand:
    keeps = None

    def __init__(self, name: str, uri: str) -> None:
        self.name = name
        self.connection = connect(uri)
        self.serde = JsonPlusSerializer()

    @classmethod
    def make(cls, server: Server, name: str, database: str) -> "ByHand":
        arm = cls(name, server.new_database(database))
        for statement in SCHEMA.split(";"):
            arm.connection.execute(statement)
        return arm

    def put(self, thread: str, turn: Turn) -> None:
        value_type, content = self.serde.dumps_typed(turn.checkpoint)
        row = (thread, turn.checkpoint_id, turn.parent_id, Json(turn.metadata), value_type, content)
        self.connection.execute(PUT, row)

    def put_writes(self, thread: str, turn: Turn) -> None:
        if turn.parent_id:
            channels = [channel for channel, _ in turn.writes]
            dumped = [self.serde.dumps_typed(value) for _, value in turn.writes]
            types, contents = [item[0] for item in dumped], [item[1] for item in dumped]
            self.connection.execute(PUT_WRITES, (thread, turn.parent_id, turn.task_id, channels, types, contents))

    def get(self, thread: str) -> Mapping[str, Any]:
        with self.connection.cursor(binary=True) as cursor:
            row = cursor.execute(GET, (thread,)).fetchone()
        return self.serde.loads_typed((row["type"], row["state"]))["channel_values"] if row else {}

    def disk(self) -> int:
        return disk_of(self.connection, TABLES)

    def tidy(self) -> None:
        vacuum(self.connection, TABLES)

    def close(self) -> None:
        self.connection.close()
