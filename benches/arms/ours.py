"""The extension: as a framework's saver uses it, with values as bytes, and as a client that speaks JSON does."""

import json
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ..server import Server, connect, disk_of, vacuum
from ..state import Turn, as_json

TABLES = (
    "checkpoint_heads",
    "checkpoints",
    "checkpoint_blobs",
    "checkpoint_segments",
    "checkpoint_writes",
    "checkpoint_logs",
    "checkpoint_messages",
)

PUT = "SELECT ckpt_put_typed(%s, %s, %s, %s, %s, %s, %b, metadata => %s, parent_checkpoint_id => %s)"
PUT_WRITES = "SELECT ckpt_put_writes_typed(%s, %s, %s, %s, %s, %b)"
COLUMNS = "kind, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, task_id, channel, version, value_type, value"
GET = f"SELECT {COLUMNS} FROM ckpt_get_typed(%s)"
LIST = f"SELECT {COLUMNS} FROM ckpt_list_typed(filter => %s)"


class OurDatabase:
    """What both ways to use the extension share."""

    name: str
    keeps: tuple[str, ...] | None = None

    def __init__(self, uri: str) -> None:
        self.connection = connect(uri)

    def disk(self) -> int:
        return disk_of(self.connection, TABLES)

    def tidy(self) -> None:
        vacuum(self.connection, TABLES)

    def close(self) -> None:
        self.connection.close()


class Ours(OurDatabase):
    """A thin saver: the framework's serializer, and one call of a function."""

    def __init__(self, name: str, uri: str) -> None:
        super().__init__(uri)
        self.name = name
        self.serde = JsonPlusSerializer()

    @classmethod
    def make(cls, server: Server, name: str, database: str) -> "Ours":
        return cls(name, server.new_database(database, extension=True))

    def put(self, thread: str, turn: Turn) -> None:
        rest = dict(turn.checkpoint)
        values = rest.pop("channel_values")
        versions = rest.pop("channel_versions")
        channels, types, contents = self.dumped((name, values[name]) for name in turn.new_versions)
        self.connection.execute(
            PUT,
            (
                thread,
                turn.checkpoint_id,
                json.dumps(rest),
                json.dumps(versions),
                channels,
                types,
                contents,
                json.dumps(turn.metadata),
                turn.parent_id or "",
            ),
        )

    def put_writes(self, thread: str, turn: Turn) -> None:
        if turn.parent_id:
            channels, types, contents = self.dumped(turn.writes)
            self.connection.execute(PUT_WRITES, (thread, turn.parent_id, turn.task_id, channels, types, contents))

    def get(self, thread: str) -> Mapping[str, Any]:
        with self.connection.cursor(binary=True) as cursor:
            found = self.loaded(cursor.execute(GET, (thread,)))
        return found[0]["channel_values"] if found else {}

    def list_by(self, filter: Mapping[str, Any]) -> list[dict[str, Any]]:
        with self.connection.cursor(binary=True) as cursor:
            return self.loaded(cursor.execute(LIST, (json.dumps(filter),)))

    def dumped(self, values: Any) -> tuple[list[str], list[str], list[bytes]]:
        channels, types, contents = [], [], []
        for channel, value in values:
            value_type, content = self.serde.dumps_typed(value)
            channels.append(channel)
            types.append(value_type)
            contents.append(content)
        return channels, types, contents

    def loaded(self, rows: Any) -> list[dict[str, Any]]:
        """The checkpoints that the rows describe, with their values as Python objects."""
        checkpoints: list[dict[str, Any]] = []
        for row in rows:
            if row["kind"] == "checkpoint":
                empty: dict[str, Any] = {"channel_values": {}, "channel_versions": {}, "pending_writes": []}
                checkpoints.append(row["checkpoint"] | {"metadata": row["metadata"]} | empty)
                continue
            value = self.serde.loads_typed((row["value_type"], row["value"]))
            if row["kind"] == "channel":
                checkpoints[-1]["channel_values"][row["channel"]] = value
                checkpoints[-1]["channel_versions"][row["channel"]] = row["version"]
            else:
                checkpoints[-1]["pending_writes"].append((row["task_id"], row["channel"], value))
        return checkpoints


FOLD_FIRST = "SELECT ckpt_put(%s, %s, next => '{agent}', checkpoint_id => %s)"
FOLD_WRITE = "SELECT ckpt_put_writes(%s, %s, 'agent', %s)"
FOLD_APPLY = """SELECT ckpt_apply_writes(%s, checkpoint_id => %s, next => '{agent}', reducers => '{"messages": "append"}') AS id"""


class OursFolding(OurDatabase):
    """A client that sends only what is new: two messages are logged and folded into the state by the server."""

    keeps = ("messages",)

    def __init__(self, name: str, uri: str) -> None:
        super().__init__(uri)
        self.name = name
        self.latest: dict[str, str] = {}

    @classmethod
    def make(cls, server: Server, name: str, database: str) -> "OursFolding":
        return cls(name, server.new_database(database, extension=True))

    def begin(self, thread: str) -> None:
        small = {"turn": 0, "cost": 0.0, "user": "ann", "language": "en", "topic": "travel", "approved": False}
        self.connection.execute(FOLD_FIRST, (thread, json.dumps({"messages": []} | small), "start"))
        self.latest[thread] = "start"

    def put(self, thread: str, turn: Turn) -> None:
        """The two calls of a turn."""
        base = self.latest[thread]
        writes = json.dumps([["messages", as_json(turn.writes[0][1])]])
        self.connection.execute(FOLD_WRITE, (thread, base, writes))
        row = self.connection.execute(FOLD_APPLY, (thread, base)).fetchone()
        assert row and row["id"] != base
        self.latest[thread] = row["id"]

    def put_writes(self, thread: str, turn: Turn) -> None:
        """A part of `put` here."""

    def get(self, thread: str) -> Mapping[str, Any]:
        row = self.connection.execute("SELECT ckpt_state(%s) AS state", (thread,)).fetchone()
        return row["state"] if row else {}
