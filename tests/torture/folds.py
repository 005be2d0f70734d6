"""The serial fold, on its own: what the channels of a thread must be after the batches that were folded, step by step."""

import json
from collections import defaultdict
from decimal import Decimal

from torture.record import REDUCERS, START, batch

dumps, loads = json.dumps, json.loads


def decoded(given):
    return json.loads(given, parse_float=Decimal)


def listed(value):
    return value if isinstance(value, list) else [value]


def fold(before, batches):
    """The state after these batches, in their order."""
    after = {name: value.copy() if isinstance(value, (list, dict)) else value for name, value in before.items()}
    for channel, value in (write for given in batches for write in decoded(given)):
        match REDUCERS.get(channel):
            case "append":
                after[channel] += listed(value)
            case "sum":
                after[channel] += value
            case "merge":
                after[channel] |= value
            case "union":
                after[channel] += [element for element in listed(value) if element not in after[channel]]
            case "add_messages":
                for message in value:
                    places = [at for at, known in enumerate(after[channel]) if known["id"] == message["id"]]
                    if places:
                        after[channel][places[0]] = message
                    else:
                        after[channel].append(message)
            case None:
                after[channel] = value
    return after


def order(op):
    return op.spec["path"].encode(), op.spec["task"].encode()


def check(thread):
    """Every batch that was acknowledged was folded once, in the step of its base, or waits there; no other one is anywhere."""
    if not thread.checkpoints:
        thread.expect(not any(op.acknowledged for op in thread.of("start", "writes")), "is gone")
        return
    chain = thread.chain()
    thread.expect(chain[:1] == ["start"], f"begins with {chain[:1]}")
    states = {name: decoded(row[2]) for name, row in thread.checkpoints.items()}
    thread.expect(states[chain[0]] == decoded(START), f"begins with {states[chain[0]]}")
    on, by_name = defaultdict(list), {}
    for op in thread.of("writes"):
        on[op.spec["base"]].append(op)
        by_name[op.spec["task"]] = op
    for base, child in zip(chain, chain[1:], strict=False):
        added = states[child]["list"][len(states[base]["list"]) :]
        # A task writes its name, and its name with a plus.
        names = added[::2]
        folded = [by_name[name] for name in names if name in by_name]
        thread.expect(len(folded) == len(names), f"{child} has writes that nobody made: {added}")
        right = all(op.possible and op.spec["base"] == base for op in folded)
        thread.expect(right, f"{child} has writes of another step, or refused ones: {names}")
        thread.expect(folded == sorted(folded, key=order), f"{child} folded out of order: {names}")
        thread.expect(len(set(names)) == len(names), f"{child} folded twice: {names}")
        expected = fold(states[base], [batch(op.spec["task"]) for op in folded])
        unlike = different(states[child], expected)
        thread.expect(not unlike, f"{child} is not the fold of {names} on {base}: {unlike}")
        missing = [op.name for op in on[base] if op.acknowledged and op not in folded]
        thread.expect(not missing, f"{child} lacks what was acknowledged: {missing}")
    check_pending(thread, chain[-1], on)
    lost = [op.name for base, ops in on.items() if base not in states for op in ops if op.acknowledged]
    thread.expect(not lost, f"acknowledged on a checkpoint that does not exist: {lost}")
    check_folds(thread, chain, on)


def different(one, other):
    return [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]


def check_pending(thread, latest, on):
    [(base, finished, asked)] = thread.rows("SELECT checkpoint_id, finished, waiting FROM ckpt_resume(%s)", thread.name)
    waiting = decoded(finished)
    further = waiting.keys() | decoded(asked).keys() | {op.spec["task"] for op in thread.of("error")}
    for op in thread.of("ask"):
        known = op.spec["base"] != latest or op.spec["task"] in further
        thread.expect(known or not op.acknowledged, f"{op.name} was acknowledged and does not wait for its answer")
    thread.expect(base == latest, f"resumes at {base}, not at {latest}")
    for op in on[latest]:
        given = waiting.pop(op.spec["task"], None)
        if given is None:
            thread.expect(not op.acknowledged, f"{op.name} was acknowledged and does not wait to be folded")
        else:
            thread.expect(op.possible and given == decoded(batch(op.spec["task"])), f"{op.name} waits as {given}")
    thread.expect(not waiting, f"nobody made the waiting writes of {list(waiting)}")


def check_folds(thread, chain, on):
    """All who folded a base were told the same."""
    child = dict(zip(chain, chain[1:], strict=False))
    for op in thread.of("fold"):
        base = op.spec["base"]
        if not op.acknowledged:
            continue
        told = op.result[0][0]
        if told == base:
            # Nothing had been written yet.
            early = [write.name for write in on[base] if write.acknowledged and write.told < op.start]
            thread.expect(not early, f"{op.name} folded nothing, though there was {early}")
        else:
            thread.expect(told == child.get(base), f"{op.name} folded {base} into {told}; its child is {child.get(base)}")
