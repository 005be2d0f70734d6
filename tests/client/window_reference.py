"""What `ckpt_window` must select, written from docs/reference.md alone, over whole logs in memory.

A message is a dict in the OpenAI form. The result is a list of (kind, place in the log or None).
"""


def calls_of(message):
    return [call["id"] for call in message.get("tool_calls") or []]


def exchanges_of(log, until):
    """Places of the messages before `until`, divided before each user message."""
    exchanges = []
    for place in range(until):
        if log[place]["role"] == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(place)
    return exchanges


def groups_of(log, exchange):
    """The parts that are shown whole or not at all: a message, or calls with all their results right behind them."""
    groups, at = [], 0
    while at < len(exchange):
        message = log[exchange[at]]
        at += 1
        if message["role"] == "tool":
            continue  # No call awaits it.
        group, awaited = [exchange[at - 1]], calls_of(message)
        while awaited and at < len(exchange) and log[exchange[at]]["role"] == "tool":
            result = log[exchange[at]]["tool_call_id"]
            if result in awaited:
                awaited.remove(result)
                group.append(exchange[at])
            at += 1
        if not awaited:
            groups.append(group)
    return groups


def window(log, size, current=None, marker=True):
    if current is None:
        exchanges = exchanges_of(log, len(log))
        final = exchanges.pop() if exchanges else []
    else:
        known = max(count for count in range(min(len(log), len(current)) + 1) if log[len(log) - count :] == current[:count])
        final = list(range(len(log) - known, len(log))) + [None] * (len(current) - known)
        exchanges = exchanges_of(log, len(log) - known)
        # The result of a tool comes with the exchange that called it.
        if current[0]["role"] == "tool" and exchanges:
            final = exchanges.pop() + final
    shown = []
    for exchange in reversed(exchanges):
        groups = groups_of(log, exchange)
        length = sum(map(len, groups))
        if length == 0:
            continue
        if len(shown) + length <= size:
            shown = sum(groups, []) + shown
            continue
        if not shown and size and len(groups[0]) <= size:
            opening, rest, room = groups[0], [], size - len(groups[0])
            for group in reversed(groups[1:]):
                if len(group) > room:
                    break
                rest, room = group + rest, room - len(group)
            shown = opening + rest
        break
    rows = [("message", place) for place in shown]
    if marker and exchanges:
        rows.append(("marker", None))
    return rows + [("final", place) for place in final]
