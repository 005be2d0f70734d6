"""langgraph-checkpoint-postgres: its defaults, and with lz4 as the database's compression. Also its DeltaChannel mode."""

from collections.abc import Mapping
from typing import Any

from langgraph.channels import DeltaChannel, LastValue
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.pregel._checkpoint import channels_from_checkpoint

from ..server import Server, connect, disk_of, vacuum
from ..state import Turn

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def config_of(thread: str, checkpoint_id: str | None = None) -> dict[str, Any]:
    configurable = {"thread_id": thread, "checkpoint_ns": ""}
    if checkpoint_id:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


class Peer:
    keeps = None

    def __init__(self, name: str, uri: str) -> None:
        self.name = name
        self.connection = connect(uri)
        self.saver = PostgresSaver(self.connection)

    @classmethod
    def make(cls, server: Server, name: str, database: str, compression: str | None = None) -> "Peer":
        arm = cls(name, server.new_database(database, compression=compression))
        arm.saver.setup()
        return arm

    def put(self, thread: str, turn: Turn) -> None:
        self.saver.put(config_of(thread, turn.parent_id), turn.checkpoint, turn.metadata, turn.new_versions)

    def put_writes(self, thread: str, turn: Turn) -> None:
        if turn.parent_id:
            self.saver.put_writes(config_of(thread, turn.parent_id), turn.writes, turn.task_id)

    def get(self, thread: str) -> Mapping[str, Any]:
        found = self.saver.get_tuple(config_of(thread))
        return found.checkpoint["channel_values"] if found else {}

    def disk(self) -> int:
        return disk_of(self.connection, TABLES)

    def tidy(self) -> None:
        vacuum(self.connection, TABLES)

    def close(self) -> None:
        self.connection.close()


def extend(messages: list[Any], writes: list[list[Any]]) -> list[Any]:
    return sum(writes, start=list(messages))


class DeltaPeer(Peer):
    """The peer with its `messages` declared as a DeltaChannel: a checkpoint holds them only every so many updates, in between they
    are replayed from the pending writes. What LangGraph's loop does for such a channel is done here around the same saver."""

    def __init__(self, name: str, uri: str) -> None:
        super().__init__(name, uri)
        self.messages = DeltaChannel(extend, list)
        self.messages.key = "messages"
        self.updates: dict[str, int] = {}

    def put(self, thread: str, turn: Turn) -> None:
        updates = self.updates.get(thread, 0) + 1
        # The first one has no writes before it that could be replayed, so it is a snapshot.
        snapshot = turn.parent_id is None or updates >= self.messages.snapshot_frequency
        self.updates[thread] = updates = 0 if snapshot else updates
        values = dict(turn.values)
        messages = values.pop("messages")
        metadata = dict(turn.metadata)
        if snapshot:
            values["messages"] = _DeltaSnapshot(messages)
        else:
            metadata["counters_since_delta_snapshot"] = {"messages": (updates, updates)}
        checkpoint = turn.checkpoint | {"channel_values": values}
        self.saver.put(config_of(thread, turn.parent_id), checkpoint, metadata, turn.new_versions)

    def get(self, thread: str) -> Mapping[str, Any]:
        found = self.saver.get_tuple(config_of(thread))
        if not found:
            return {}
        values = found.checkpoint["channel_values"]
        specs = {name: LastValue(object, name) for name in values} | {"messages": self.messages}
        channels, _ = channels_from_checkpoint(specs, found.checkpoint, saver=self.saver, config=found.config)
        return {name: channel.get() for name, channel in channels.items()}
