"""The ratios that the benchmark reports, and what each must be."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    what: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, ratio: float) -> bool:
        return ratio >= self.at_least if self.at_least is not None else ratio <= (self.at_most or 0)

    def __str__(self) -> str:
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"


BOUNDS = {
    "disk_messages_peer": Bound("disk, messages only, 1,000 turns: peer / ours", at_least=150),
    "disk_all_peer": Bound("disk, whole state and its writes, 1,000 turns: peer / ours", at_least=20),
    "bytes_per_turn_growth": Bound("our bytes per turn: turn 1,000 / turn 100", at_most=1.1),
    "put_500_peer": Bound("put of the whole state, turn 500: peer / ours", at_least=4),
    "put_500_peer_lz4": Bound("put of the whole state, turn 500: peer-lz4 / ours", at_least=1.7),
    "put_10_peer_lz4": Bound("put of the whole state, turn 10: peer-lz4 / ours", at_least=1.4),
    "get_500_peer_lz4": Bound("read of the whole state, turn 500: peer-lz4 / ours", at_least=1.2),
    "get_500_floor": Bound("its server time: ours / bare SELECT of the same bytes", at_most=1.5),
    "put_small_floor": Bound("ckpt_put of a small state / one INSERT with commit", at_most=1.5),
    "apply_growth": Bound("append of 2 messages by writes and fold: turn 1,000 / turn 10", at_most=1.2),
    "apply_500_peer_lz4": Bound("turn 500: peer-lz4's put / that append of ours", at_least=10),
    "latest_growth": Bound("ckpt_latest: 5,000 checkpoints / 10", at_most=1.1),
    "latest_5000_peer": Bound("5,000 checkpoints: peer's read of the latest / ckpt_latest", at_least=5),
    "list_filter_peer": Bound("list by metadata, 200 rows of 10,000: peer / ours", at_least=5),
    "throughput_peer": Bound("puts a second, 8 clients, turn 100: ours / peer", at_least=4),
    "throughput_peer_lz4": Bound("puts a second, 8 clients, turn 100: ours / peer-lz4", at_least=1.8),
    "append_floor": Bound("ckpt_append of 2 messages / one INSERT of 2 rows with commit", at_most=1.5),
    "old_version_read": Bound("read: a random old version of 1,000 / the newest", at_most=1.3),
    "window_growth": Bound("ckpt_window: a log of 10,000 messages / of 100", at_most=1.3),
    "append_growth": Bound("ckpt_append: a log of 10,000 messages / of 100", at_most=1.3),
    "window_floor": Bound("ckpt_window of 60 messages / a SELECT of the rows", at_most=3),
    "wal_growth": Bound("WAL bytes per put: turn 1,000 / turn 100", at_most=1.1),
}
