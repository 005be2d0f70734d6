"""The message log of a thread as the contract describes it, in memory."""

import json

import msg_id
from model_state import Refused, is_ephemeral


def as_json(value):
    """JSON text of a parsed value whose numbers are Decimal."""
    return json.dumps(value, default=lambda number: int(number) if number == int(number) else float(number))


def text_of(content):
    """The text of a message, or of its text parts, one a line."""
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "\n".join(texts) if texts else None
    return content if isinstance(content, str) else None


class Log:
    def __init__(self, thread_id):
        self.messages = []
        self.counter = 0
        # The threads under whose names the messages have their ids: this one, and those that it is a copy of.
        self.names = [thread_id]

    def append(self, messages, turn, on_conflict):
        turn = turn or ""
        log = list(self.messages)
        counter = self.counter
        occurrences = {}
        answers = []
        for message in messages:
            if is_ephemeral(message):
                continue
            own = message.get("id")
            known = [own]
            if own is None:
                first = msg_id.of_message(self.names[-1], as_json(message), turn)
                occurrence = occurrences[first] = occurrences.get(first, -1) + 1
                known = [msg_id.of_message(name, as_json(message), turn, occurrence) for name in reversed(self.names)]
            at = next((n for name in known for n, row in enumerate(log) if row["msg_id"] == name), None)
            if at is None:
                counter += 1
                log.append({"seq": counter, "msg_id": known[0], "message": message, "turn": turn})
                answers.append((counter, known[0], True))
                continue
            if own is not None and log[at]["message"] != message:
                if on_conflict == "error":
                    raise Refused("23505")
                if on_conflict == "replace":
                    log[at] = log[at] | {"message": message}
            answers.append((log[at]["seq"], log[at]["msg_id"], False))
        self.messages, self.counter = log, counter
        return answers

    def rewind(self, after_seq):
        kept = [row for row in self.messages if row["seq"] <= after_seq]
        removed = len(self.messages) - len(kept)
        self.messages = kept
        return removed

    def rows(self, after, before, max_rows):
        after = 0 if after is None else after
        rows = [row for row in self.messages if row["seq"] > after and (before is None or row["seq"] < before)]
        return [self.row(row["message"], row) for row in rows[:max_rows]]

    def row(self, message, row):
        return row["seq"], row["msg_id"], message["role"], text_of(message.get("content")), message, row["turn"]
