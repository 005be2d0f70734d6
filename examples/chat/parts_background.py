"""Parts 5 to 7 of the demonstration: summaries and facts, made beside the requests, and who depends on whom."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
from psycopg.conninfo import make_conninfo

import facts
import inspection
from backend import Request
from demo import LONG, TALK, USER
from memory import Memory, said
from report import shorten
from scripted import CheapModel, ModelFailed, Reply
from store import SCHEMA, Store
from worker import summarise_due

CARD = "4929-1188"
LONG_TALK = [
    f"My card has the number {CARD}. Can I renew a loan?",
    "I live in the north. Is there a branch near?",
    "I read crime novels on paper.",
    "Do you lend e-books?",
    "I have an old reader.",
    "What does a late book cost?",
    "Is there a quiet room?",
    "I am often there on Sunday.",
    "How long does a reservation wait?",
    "I live in the north.",
    "May I borrow books for my group?",
    "Are you open late on Monday?",
]


def summaries(demo):
    report = demo.report
    report.head("5. What falls out of the window is summarised, beside the requests")
    cheap = CheapModel()
    backend = demo.backend(size=8)
    for at, message in enumerate(LONG_TALK, 1):
        backend.handle(Request(USER, LONG, f"long-{at}", message))
    question = Request(USER, LONG, "question", "Are you open on Sunday?")

    def summary():
        """What stands in the next prompt for the messages before its window."""
        system = [message["content"] for message in backend.prompt(question) if message["role"] == "system"]
        return system[2] if len(system) == 3 else ""

    def work(memory=demo.memory, lease="1 minute"):
        return summarise_due(memory, LONG, cheap, keep=4, every=4, lease=lease)

    before = backend.prompt(question)
    extract = summary()
    report.say(f"Without any model: {shorten(extract, 110)}")

    def fail():
        raise ModelFailed("no answer in time")

    cheap.next_call = fail
    # A short lease, so that nobody has to wait until it is over.
    report.check(
        work(lease="1 millisecond") == "failed" and backend.prompt(question) == before,
        "the cheap model fails: the next prompt is the same as before",
    )
    cheap.next_call = lambda: backend.redact(LONG, "long-1", "My card has the number [removed]. Can I renew a loan?")
    deadline = time.monotonic() + 10
    while (outcome := work()) == "not due" and time.monotonic() < deadline:
        pass  # the short lease is still running
    report.check(outcome == "dropped", "a card number is taken out while the model works: 40001, its summary is dropped")
    calls = cheap.calls
    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        workers = [Memory(stack.enter_context(demo.connect()), demo.schema) for _ in range(4)]
        outcomes = list(pool.map(work, workers))
    report.check(
        sorted(outcomes) == ["not due"] * 3 + ["stored"] and cheap.calls == calls + 1,
        "four workers ask at once: one gets the job, and the model is asked once",
        outcomes,
    )
    made = summary()
    report.say(f"With the summary:  {shorten(made, 110)}")
    report.check(made != extract and "not shown" not in made, "the next prompt has the summary, and nothing is missing from it")
    everywhere = inspection.tables_with(demo.conn, inspection.tables_of_extension(demo.conn), CARD)
    on_page = [content for _, content in demo.store.page(LONG) if CARD in content]
    report.check(not everywhere and not on_page, "the card number stands nowhere any more", [everywhere, on_page])

    for at, message in enumerate(["Is there a quiet room in the north?", "Can I extend my loan?"], 1):
        backend.handle(Request(USER, LONG, f"more-{at}", message))
    outcome = work()
    report.check(
        outcome == "stored" and summary().startswith(made) and "not shown" not in summary() and cheap.read[-1:] == [4],
        f"two turns later: the next one goes on from it and is made of 4 messages, not of {sum(cheap.read[-2:])}",
    )
    window = demo.memory.window(
        LONG, current=said("user", question.message), preamble=said("system", "Be short."), size=8, max_tokens=120
    )
    kinds, tokens = [row.kind for row in window], sum(row.tokens for row in window)
    shown = kinds.count("message")
    report.check(
        tokens <= 120 and kinds == ["preamble", *["message"] * shown, "marker", "final"] and 0 < shown < 8,
        f"with 120 tokens at most, the oldest goes: {shown} of 8 messages stay, no summary, {tokens} tokens",
        kinds,
    )


def facts_from_messages(demo):
    report = demo.report
    report.head("6. Facts, every six messages, and never on the way to the model")
    cheap = CheapModel()
    messages = len(demo.store.page(LONG))

    def extract_all():
        """How many facts each batch gave."""
        batches = []
        while (new := facts.extract_due(demo.conn, LONG, cheap)) is not None:
            batches.append(new)
        return batches

    with demo.conn.transaction(force_rollback=True):
        undone = extract_all()
    report.check(
        bool(undone) and not facts.profile(demo.conn, USER), "a crash before the commit: no fact, and all is still to do"
    )
    backend = demo.backend()
    cheap.next_call = lambda: backend.redact(LONG, "long-3", "I read novels on paper.")
    report.check(
        facts.extract_due(demo.conn, LONG, cheap) is None and not facts.profile(demo.conn, USER),
        "a message is edited while the model works: what was found in it is dropped",
    )
    batches = extract_all()
    report.check(
        batches == undone and len(batches) == messages // 6,
        f"{messages} messages, {len(batches)} batches of six: {' + '.join(map(str, batches))} facts",
        batches,
    )
    report.table(["what the user's page shows"], [[fact] for fact in facts.profile(demo.conn, USER)])
    report.check(facts.profile(demo.conn, USER).count("I live in the north") == 1, "told twice, it is one fact")
    calls = cheap.calls
    report.check(extract_all() == [] and cheap.calls == calls, "again: nothing is due, and the model is not asked")
    # As if the watermark had been lost.
    demo.conn.execute("UPDATE chat_demo.threads SET extracted = 0 WHERE thread_id = %s", [LONG])
    report.check(sum(extract_all()) == 0, "all of it once more: no fact is there twice")
    with demo.connect() as other, demo.connect() as conn, other.transaction():
        other.execute("LOCK TABLE chat_demo.facts IN ACCESS EXCLUSIVE MODE")
        try:
            answer = demo.backend(conn).handle(Request(USER, LONG, "while-locked", "Where do I live?"))
        except psycopg.errors.QueryCanceled as error:
            answer = error
    report.check(isinstance(answer, str), "a request is answered while nobody can even read the table of facts", answer)


def independence(demo):
    report = demo.report
    report.head("7. Neither knows the other")
    found = inspection.dependencies(demo.conn, "chat_demo")
    report.check(not found, "no object of the one depends on one of the other", found)
    question = said("user", "When are you open?")
    before = demo.memory.window(LONG, current=question)
    with demo.conn.transaction(force_rollback=True):
        demo.conn.execute("DROP SCHEMA chat_demo CASCADE")
        without = demo.memory.window(LONG, current=question)
    report.check(without == before, "without the application's schema the window is the same")
    if not demo.conn.execute("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()[0]:
        report.say("(not shown: the application in a database without the extension; this role may not create one)")
        return
    page, bare = without_extension(demo)
    report.check(
        page == demo.store.page(TALK) and bare,
        "in a database without the extension the application's schema is made, and its page is the same",
    )


def without_extension(demo):
    """The page of a thread in a database that has the application only, and whether it has indeed no extension."""
    name = f"chat_demo_{demo.conn.info.backend_pid}"
    demo.conn.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        with psycopg.connect(make_conninfo(demo.uri, dbname=name), autocommit=True) as conn:
            conn.execute(SCHEMA)
            store, page = Store(conn), demo.store.page(TALK)
            for at in range(0, len(page), 2):
                reply = Reply(page[at + 1][1], 1, 1)
                store.add_turn(USER, TALK, f"bare-{at}", page[at][1], reply)
            store.bill(TALK)
            return store.page(TALK), not inspection.tables_of_extension(conn)
    finally:
        demo.conn.execute(f"DROP DATABASE {name} WITH (FORCE)")
