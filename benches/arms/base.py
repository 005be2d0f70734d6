"""What all arms can do."""

from collections.abc import Mapping
from typing import Any, Protocol

from ..state import Turn


class Arm(Protocol):
    name: str
    # The channels that it keeps; None: all.
    keeps: tuple[str, ...] | None

    def put(self, thread: str, turn: Turn) -> None:
        """Saves the turn's checkpoint. The work of the client is part of it: values come as Python objects."""

    def put_writes(self, thread: str, turn: Turn) -> None:
        """Logs the turn's writes against the checkpoint before it."""

    def get(self, thread: str) -> Mapping[str, Any]:
        """The latest checkpoint's channels, as Python objects again."""

    def disk(self) -> int:
        """Bytes on disk, indexes and TOAST included."""

    def tidy(self) -> None:
        """What autovacuum would do in time."""

    def close(self) -> None: ...
