"""An append of two messages by `ckpt_put_writes` and `ckpt_apply_writes`: in a thread of ten turns and in one of a thousand."""

from ..arms.ours import OursFolding
from ..results import Results
from ..settings import SEED, Bench
from ..state import Chat, Turn
from ..timing import rotated, timed, without_collector
from .growth import THREAD

SECTION = "fold"
# A short thread serves the turns around the tenth, then comes the next.
BEFORE, SERVED = 7, 6


class ShortThreads:
    def __init__(self, arm: OursFolding) -> None:
        self.arm = arm
        self.begun = 0
        self.chat = Chat("")
        self.thread = ""

    def next_turn(self) -> Turn:
        if not self.begun or self.chat.number >= BEFORE + SERVED:
            self.begun += 1
            self.thread = f"short-{self.begun}"
            self.chat = small_chat(f"{SEED} fold {self.thread}")
            self.arm.begin(self.thread)
            for turn in self.chat.turns(BEFORE):
                self.arm.put(self.thread, turn)
        return self.chat.turn()


def small_chat(seed: str) -> Chat:
    return Chat(seed, documents=False, small=False)


def measure(bench: Bench, results: Results, arm: OursFolding, long: Chat) -> None:
    short = ShortThreads(arm)
    late = long.branch(f"{SEED} fold late", age=0)
    times: dict[str, list[float]] = {"turn 10": [], "turn 1,000": []}
    with without_collector():
        for at in range(bench.size.reads):
            # Both turns are there before a call is timed.
            turns = [("turn 10", short.next_turn(), short.thread), ("turn 1,000", late.turn(), THREAD)]
            for name, turn, thread in rotated(turns, at):
                times[name].append(timed(arm.put, thread, turn))
    early, grown = (results.times(SECTION, f"append, {name}", times[name]) for name in times)
    results.ratio("apply_growth", grown.median, early.median)
