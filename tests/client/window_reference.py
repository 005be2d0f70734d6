"""What `ckpt_window` must show, written from docs/reference.md alone, over whole logs in memory.

A message is a dict in the OpenAI form, without markup. The rows are (kind, place in the log or None, tokens).
"""

from tokens_reference import of_message, of_text


class TooSmall(Exception):
    """The budget does not hold what must be shown; the argument is how many tokens are missing."""


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


def newest(exchanges, room, weight):
    """The newest whole exchanges that fit in the room; of the very newest, if it does not, its opening and its newest groups."""
    shown = []
    for groups in reversed(exchanges):
        heavy = sum(weight(place) for group in groups for place in group)
        if heavy <= room:
            shown.insert(0, groups)
            room -= heavy
            continue
        if not shown and sum(map(weight, groups[0])) <= room:
            room -= sum(map(weight, groups[0]))
            rest = []
            for group in reversed(groups[1:]):
                if sum(map(weight, group)) > room:
                    break
                room -= sum(map(weight, group))
                rest.insert(0, group)
            shown = [groups[:1] + rest]
        break
    return shown


def quoted(text, most):
    line = " ".join((text or "").split())
    return f'"{line}"' if len(line) <= most else f'"{line[:most]}…"'


def marker_text(opening):
    return f'[The exchange above began with: {quoted(opening, 200)}. In the next message, "it" and "that" refer to it.]'


def extract_text(log, before, covered=0):
    count = before - covered
    openings = [message["content"] for message in log[max(covered, before - 500) : before] if message["role"] == "user"][-6:]
    text = f"[{count} earlier {'message is' if count == 1 else 'messages are'} not shown."
    if openings:
        text += " In them the user said, the latest last:" + "".join(f"\n- {quoted(text, 100)}" for text in openings)
    return text + "]"


def window(log, size, current=None, marker=True, max_tokens=None, summary=None):
    """`summary` is (how many messages it covers, its text)."""
    weight_of = [of_message(message) for message in log]
    if current is None:
        exchanges = exchanges_of(log, len(log))
        final = exchanges.pop() if exchanges else []
        new = []
    else:
        known = max(count for count in range(min(len(log), len(current)) + 1) if log[len(log) - count :] == current[:count])
        final = list(range(len(log) - known, len(log)))
        new = current[known:]
        exchanges = exchanges_of(log, len(log) - known)
        # The result of a tool comes with the exchange that called it.
        if current[0]["role"] == "tool" and exchanges:
            final = exchanges.pop() + final
    marked = marker_text(log[exchanges[-1][0]]["content"]) if marker and exchanges else None
    candidates = [groups for groups in (groups_of(log, exchange) for exchange in exchanges) if groups]
    shown = newest(candidates, size, lambda place: 1)
    places = [place for groups in shown for group in groups for place in group]
    before = next(iter(places + final), len(log))
    text = None
    if before:
        covered, text = summary or (0, "")
        if covered < before:
            text = f"{text}\n\n{extract_text(log, before, covered)}".lstrip()
    fixed = sum(weight_of[place] for place in final) + sum(map(of_message, new)) + (of_text(marked) if marked else 0)
    if max_tokens is not None:
        if fixed > max_tokens:
            raise TooSmall(fixed - max_tokens)
        room = max_tokens - fixed
        if (of_text(text) if text else 0) + sum(weight_of[place] for place in places) > room:
            text = None
            shown = newest(shown, room, lambda place: weight_of[place])
            places = [place for groups in shown for group in groups for place in group]
    rows = [("summary", None, of_text(text))] if text else []
    rows += [("message", place, weight_of[place]) for place in places]
    if marked:
        rows.append(("marker", None, of_text(marked)))
    rows += [("final", place, weight_of[place]) for place in final]
    return rows + [("final", None, of_message(message)) for message in new]
