"""A state that is the conversation and nothing else: what a growing list costs on disk."""

from ..arms.ours import Ours
from ..arms.peer import Peer
from ..results import Results, progress
from ..settings import SEED, Bench
from ..state import Chat
from .growth import Growth

SECTION = "messages only"
TURNS = 1000


def measure(bench: Bench, results: Results) -> None:
    progress(f"messages only, {TURNS} turns")
    chat = Chat(f"{SEED} messages", documents=False, small=False)
    growth = Growth(results, SECTION, chat, writes=False)
    growth.add(Ours.make(bench.server, "ours", "ours_messages"), TURNS)
    growth.add(Peer.make(bench.server, "peer", "peer_messages"), TURNS)
    growth.run()
    sizes = growth.finish()
    results.ratio("disk_messages_peer", sizes["peer"], sizes["ours"])
    for arm, _ in growth.arms:
        arm.close()
    for name in ("ours_messages", "peer_messages"):
        bench.server.drop_database(name)
