"""Stands in for what a real system buys or runs elsewhere: retrieval, classification, the model, and the cheap model.

All of it is deterministic and knows nothing of a database.
"""

import hashlib
import re
from dataclasses import dataclass
from decimal import Decimal

PRICE_IN, PRICE_OUT = Decimal("0.000003"), Decimal("0.000015")  # for each token


@dataclass(frozen=True)
class Document:
    title: str
    keywords: frozenset
    answer: str  # the sentence that an answer quotes
    detail: str  # what only the model sees


def document(title, keywords, answer, detail):
    return Document(title, frozenset(keywords.split()), answer, detail)


# The documents of a public library.
CORPUS = [
    document("Opening hours", "open hours sunday monday late", "We open at 9:00 and close at 19:00, on Sunday at 14:00.",
             "The side door stays shut during the works in the yard."),
    document("Loans", "borrow loan long books many", "You may borrow 20 books for four weeks.",
             "Reference shelves R1 to R9 are not lent."),
    document("Renewals", "renew extend later", "A loan is renewed twice, unless somebody else waits for the book.",
             "Renewals are counted per copy and not per title."),
    document("Fines", "fine fines late overdue cost", "A late book costs 20 cents a day, 8 euros at most.",
             "Fines below 1 euro are written off in January."),
    document("Reservations", "reserve reservation wait", "A reserved book waits at the desk for seven days.",
             "The desk calls before noon."),
    document("Branches", "branch branches near north south", "There is a branch in the north, beside the swimming pool.",
             "The van stops there on every second Tuesday."),
    document("Rooms", "room rooms group quiet", "A group room takes eight people and is free for two hours.",
             "Room 3 has no window."),
    document("E-books", "e-book e-books reader download", "E-books are lent for 14 days and return themselves.",
             "The licence allows five readers at a time."),
]


@dataclass(frozen=True)
class Context:
    """What belongs to one request and must not reach the next one."""

    retrieval: str  # names this retrieval in the traces of the system
    intent: str
    documents: list


def words_of(text):
    return set(re.findall(r"[\w-]+", text.lower()))


def retrieve_and_classify(request_id, message):
    words = words_of(message)
    found = sorted(CORPUS, key=lambda entry: -len(entry.keywords & words))[:2]
    documents = [entry for entry in found if entry.keywords & words]
    is_question = message.rstrip().endswith("?")
    intent = "statement" if not is_question else "lookup" if documents else "follow-up"
    return Context("retrieval-" + hashlib.sha256(request_id.encode()).hexdigest()[:16], intent, documents)


@dataclass(frozen=True)
class Reply:
    text: str
    tokens_in: int
    tokens_out: int

    @property
    def cost(self):
        return self.tokens_in * PRICE_IN + self.tokens_out * PRICE_OUT


class ModelFailed(Exception):
    """The provider gave no answer."""


class Model:
    """Answers as models do: with its thoughts, citations and a list of sources, which the front end renders."""

    def __init__(self, style=""):
        self.style = style
        self.prompts = []  # all that it was ever given, for whoever wants to check

    def answer(self, prompt):
        if unknown := {key for message in prompt for key in message} - {"role", "content"}:
            raise ModelFailed(f"unknown members of a message: {', '.join(sorted(unknown))}")
        self.prompts.append(prompt)
        system = "\n".join(message["content"] for message in prompt if message["role"] == "system")
        documents = re.findall(r"^\[\d\] (.+?): (.+?\.) ", system, re.MULTILINE)
        if documents:
            (title, sentence), *others = documents
            text = f"<think>Document 1 says it.</think>{sentence[:-1]} [1]."
            text += "".join(f"\n\nSee also: {other} [2]." for other, _ in others)
            text += f"\n\n<sources>[1] {title}</sources>"
        elif prompt[-1]["content"].endswith("?"):
            before = [message["content"] for message in prompt[:-1] if message["role"] == "assistant"]
            text = f"<think>No document; what did I say before?</think>As I said: {before[-1] if before else 'nothing yet'}"
        else:
            text = "Thank you, noted【0†conversation】."
        text += self.style
        # The provider counts and charges; here a token has four characters.
        return Reply(text, sum(len(message["content"]) for message in prompt) // 4, len(text) // 4)


class CheapModel:
    """Makes summaries and finds facts. Its next call may be told to fail, or to do something while it works."""

    def __init__(self):
        self.calls = 0
        self.read = []  # how many messages each summary was made of
        self.next_call = lambda: None

    def summarise(self, previous, messages):
        self.called()
        self.read.append(len(messages))
        topics = [message["content"].split("?")[0] for message in messages if message["role"] == "user"]
        return f"{previous}; {'; '.join(topics)}" if previous else f"The user asked: {'; '.join(topics)}"

    def extract(self, messages):
        """Facts that users tell of themselves, each with the place of its message in the list."""
        self.called()
        told = re.compile(r"\bI (?:live|read|like|am|have|work) [^.?!]+")
        return [(at, fact) for at, (role, text) in enumerate(messages) if role == "user" for fact in told.findall(text)]

    def called(self):
        self.calls += 1
        during, self.next_call = self.next_call, lambda: None
        during()
