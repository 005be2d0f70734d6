"""The state that is saved: a chat that grows by two messages a turn, five retrieved documents that are replaced each turn, and six
small channels. A turn is made once and given to every arm, so that all of them save the same."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from .prose import Prose

MESSAGE_LENGTH = 600
DOCUMENTS = 5
DOCUMENT_LENGTH = 4096

FIRST_MOMENT = datetime(2025, 1, 1, tzinfo=timezone.utc)
# Of a UUIDv6: 100 nanoseconds since 1582.
UUID_EPOCH = 0x01B21DD213814000


@dataclass(frozen=True)
class Turn:
    """What a framework hands to its checkpointer in one turn: the writes of the task, logged against the checkpoint before, and then
    the checkpoint."""

    number: int
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    new_versions: dict[str, str]
    writes: list[tuple[str, Any]]
    task_id: str

    @property
    def checkpoint_id(self) -> str:
        return self.checkpoint["id"]

    @property
    def values(self) -> dict[str, Any]:
        return self.checkpoint["channel_values"]


class Chat:
    """The turns of one thread, one after the other. The same seed gives the same ones."""

    def __init__(self, seed: str, *, documents: bool = True, small: bool = True, window: int | None = None) -> None:
        self.random = random.Random(seed)
        self.prose = Prose(seed)
        self.has_documents = documents
        self.has_small = small
        self.window = window
        self.number = 0
        self.moment = FIRST_MOMENT
        self.messages: list[BaseMessage] = []
        self.values: dict[str, Any] = {}
        self.versions: dict[str, str] = {}
        self.last_id: str | None = None

    def turns(self, count: int) -> Iterator[Turn]:
        for _ in range(count):
            yield self.turn()

    def branch(self, seed: str, age: int) -> "Chat":
        """Another way to go on from here, begun `age` hours later."""
        branch = Chat(seed, documents=self.has_documents, small=self.has_small, window=self.window)
        branch.number, branch.last_id = self.number, self.last_id
        branch.messages, branch.values, branch.versions = self.messages, self.values, self.versions
        branch.moment = self.moment + timedelta(hours=age)
        return branch

    def turn(self) -> Turn:
        self.number += 1
        spoken = self.two_messages()
        # A framework's reducer makes a new list each time, and so do we: the old one may still be in use.
        self.messages = self.messages + spoken
        if self.window:
            self.messages = self.messages[-self.window :]
        changed: dict[str, Any] = {"messages": self.messages}
        writes: list[tuple[str, Any]] = [("messages", spoken)]
        if self.has_documents:
            changed["documents"] = [self.prose.text(DOCUMENT_LENGTH) for _ in range(DOCUMENTS)]
            writes.append(("documents", changed["documents"]))
        if self.has_small:
            changed.update(self.small_channels())
            writes.append(("turn", self.number))
        return self.saved(changed, writes)

    def two_messages(self) -> list[BaseMessage]:
        question, answer = self.prose.text(MESSAGE_LENGTH), self.prose.text(MESSAGE_LENGTH)
        asked, answered = self.random.randint(800, 4000), self.random.randint(100, 400)
        return [
            HumanMessage(content=question, id=self.uuid()),
            AIMessage(
                content=answer,
                id=f"run-{self.uuid()}",
                response_metadata={"model_name": "gpt-4o-mini-2024-07-18", "finish_reason": "stop"},
                usage_metadata={
                    "input_tokens": asked,
                    "output_tokens": answered,
                    "total_tokens": asked + answered,
                },
            ),
        ]

    def small_channels(self) -> dict[str, Any]:
        """Those of the six that this turn changes."""
        changed: dict[str, Any] = {"turn": self.number, "cost": round(self.number * 0.00213, 5)}
        if self.number == 1:
            changed |= {"user": "ann", "language": "en", "topic": "travel", "approved": False}
        elif self.number % 10 == 0:
            changed |= {"topic": self.prose.text(20), "approved": not self.values["approved"]}
        return changed

    def saved(self, changed: dict[str, Any], writes: list[tuple[str, Any]]) -> Turn:
        # As LangGraph's Postgres saver numbers them: a counter and a random fraction.
        version = f"{self.number + 1:032}.{self.random.random():.16f}"
        new_versions = dict.fromkeys(changed, version)
        seen = {"__input__": {}, "agent": {"branch:to:agent": version}}
        self.values = self.values | changed
        self.versions = self.versions | new_versions
        self.moment += timedelta(seconds=1)
        checkpoint = {
            "v": 4,
            "ts": self.moment.isoformat(),
            "id": self.new_checkpoint_id(),
            "channel_values": self.values,
            "channel_versions": self.versions,
            "versions_seen": seen,
            "updated_channels": sorted(changed),
        }
        metadata = {"source": "loop", "step": self.number, "parents": {}}
        turn = Turn(self.number, self.last_id, checkpoint, metadata, new_versions, writes, self.uuid())
        self.last_id = checkpoint["id"]
        return turn

    def new_checkpoint_id(self) -> str:
        """A UUIDv6, as LangGraph makes them: they sort by time."""
        ticks = int(self.moment.timestamp()) * 10_000_000 + UUID_EPOCH
        high, low = ticks >> 12, ticks & 0xFFF
        return str(UUID(int=high << 80 | 6 << 76 | low << 64 | 1 << 63 | self.random.getrandbits(62)))

    def uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))


def as_json(messages: list[BaseMessage]) -> list[dict[str, Any]]:
    """Messages as a client without a framework has them."""
    role = {"human": "user", "ai": "assistant"}
    return [{"role": role[message.type], "content": message.content, "id": message.id} for message in messages]
