"""langgraph-checkpoint-sqlite, on a file beside the results."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from ..state import Turn
from .peer import config_of


class Sqlite:
    keeps = None

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self.file = file
        self.connection = sqlite3.connect(file, check_same_thread=False)
        self.saver = SqliteSaver(self.connection)
        self.saver.setup()

    def put(self, thread: str, turn: Turn) -> None:
        self.saver.put(config_of(thread, turn.parent_id), turn.checkpoint, turn.metadata, turn.new_versions)

    def put_writes(self, thread: str, turn: Turn) -> None:
        if turn.parent_id:
            self.saver.put_writes(config_of(thread, turn.parent_id), turn.writes, turn.task_id)

    def get(self, thread: str) -> Mapping[str, Any]:
        found = self.saver.get_tuple(config_of(thread))
        return found.checkpoint["channel_values"] if found else {}

    def disk(self) -> int:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.file.stat().st_size

    def tidy(self) -> None:
        self.connection.execute("VACUUM")

    def close(self) -> None:
        self.connection.close()
