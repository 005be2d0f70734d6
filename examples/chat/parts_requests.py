"""Parts 1 to 4 of the demonstration: what a request does, and what it leaves behind."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg

import inspection
from backend import Request, conversation_of
from demo import RETRY, TALK, USER
from memory import said
from report import shorten
from scripted import Model, retrieve_and_classify
from store import NotYours


def two_views(demo):
    report = demo.report
    report.head("1. The same conversation, as the user sees it and as the model reads it")
    backend = demo.backend()
    for at, message in enumerate(["When are you open?", "How many books may I borrow?", "Is that so?"], 1):
        backend.handle(Request(USER, TALK, f"talk-{at}", message))
    page = demo.store.page(TALK)
    report.say("The application's table, for the front end:")
    report.table(["role", "content"], [[role, shorten(content, 105)] for role, content in page])
    report.say("The window of the next request, for the model:")
    question = said("user", "And on Sunday?")
    window = demo.memory.window(TALK, current=question, preamble=said("system", "..."))
    report.table(
        ["kind", "role", "tokens", "content"],
        [[row.kind, row.role, row.tokens, shorten(row.content, 104)] for row in window],
    )
    log = [(row.role, row.content) for row in demo.memory.messages(TALK)]
    report.check(page == log, "the log has what the user saw, markup and all")
    answers = "".join(content for role, content in page if role == "assistant")
    read = "".join(row.content for row in window)
    marks = ["<think>", "[1]", "<sources>"]
    report.check(all(mark in answers and mark not in read for mark in marks), f"the model reads no {', '.join(marks)}")
    kinds = [row.kind for row in window]
    report.check(
        kinds == ["preamble", *["message"] * len(page), "marker", "final"],
        "preamble, messages, marker, question: in this order",
        kinds,
    )


def retries(demo):
    report = demo.report
    report.head("2. Requests that come twice")
    model = Model()
    backend = demo.backend(model=model)
    request = Request(USER, RETRY, "retry-1", "Do you lend e-books?")
    first, second = backend.handle(request), backend.handle(request)
    report.check(first == second, "the client lost the answer and asks again: it gets the same one")
    report.check(len(model.prompts) == 1, "the model was asked once")

    request = Request(USER, RETRY, "retry-2", "How long may I borrow a book?")
    with demo.connect() as left, demo.connect() as right, ThreadPoolExecutor(2) as pool:
        attempts = [demo.backend(left, Model(" (A)")), demo.backend(right, Model(" (B)"))]
        replies = [attempt.model.answer(attempt.prompt(request)) for attempt in attempts]
        kept = list(pool.map(lambda attempt, reply: attempt.keep(request, reply), attempts, replies))
    report.check(
        replies[0] != replies[1] and kept[0] == kept[1],
        "two attempts at once had different answers: one counts, and both clients get it",
    )

    request = Request(USER, RETRY, "retry-3", "Is there a group room?")
    with demo.connect() as conn:
        dying = demo.backend(conn)
        # The connection is cut between the rows of the application and those of the log.
        dying.memory.append = lambda *_, **__: conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        with suppress(psycopg.OperationalError):
            dying.handle(request)
    sizes = len(demo.store.page(RETRY)), len(demo.memory.messages(RETRY))
    report.check(sizes == (4, 4), "the backend dies between the two writes: neither is there", sizes)
    backend.handle(request)

    turns = {row.turn for row in demo.memory.messages(RETRY)}
    page = demo.store.page(RETRY)
    report.check(
        page == [(row.role, row.content) for row in demo.memory.messages(RETRY)] and len(page) == 2 * len(turns) == 6,
        "after its retry: three turns, each once, on the page and in the log",
    )
    answers, tokens_in, tokens_out, cost = demo.store.bill(RETRY)
    report.check(answers == 3, f"three answers are billed: {tokens_in} tokens in, {tokens_out} out, {cost}")
    turn = [said(role, content) for role, content in page[-2:]]
    report.check(demo.memory.append(RETRY, turn, turn="retry-3") == 0, "the log by itself takes a turn only once, too")
    try:
        backend.handle(Request("reader-2", RETRY, "retry-4", "What did they ask?"))
        report.check(False, "another user is refused")
    except NotYours:
        report.check(True, "another user is refused")


def leaks(demo):
    report = demo.report
    report.head("3. What belongs to one request does not reach the next")
    questions = ["What does a late book cost?", "And can I reserve one?"]
    needles = []
    for at, message in enumerate(questions, 1):
        request = Request(USER, TALK, f"leak-{at}", message)
        context = retrieve_and_classify(request.id, message)
        needles.append([context.retrieval, "Intent: ", *(entry.detail for entry in context.documents)])
        demo.backend().handle(request)
    first, second = ("\n".join(message["content"] for message in prompt) for prompt in demo.model.prompts[-2:])
    own = [needle for needle in needles[0] if needle not in needles[1]]
    report.say("The first request has, and the second has not:")
    report.table(["in the preamble"], [[needle] for needle in own])
    report.check(all(needle in first for needle in own), "with the first request the model read all of that")
    report.check(not any(needle in second for needle in own), "with the next one nothing of that")
    tables = inspection.tables_of_extension(demo.conn)
    found = inspection.tables_with(demo.conn, tables, questions[0])
    report.check(bool(found), f"a search of the extension's {len(tables)} tables finds what the user asked", found)
    found = [inspection.tables_with(demo.conn, tables, needle) for pair in needles for needle in pair]
    report.check(not any(found), "and nothing of what was retrieved and classified, for either request", found)


def shapes(demo):
    report = demo.report
    report.head("4. Three generations of clients")
    report.say("The same conversation, as each of them sends it:")
    page = demo.store.page(TALK)
    spellings = {
        "thread id": None,
        "history string": "\n".join(f"{'User' if role == 'user' else 'Assistant'}: {text}" for role, text in page),
        "messages, OpenAI": [said(role, text) for role, text in page],
        "messages, LangChain": [{"type": "human" if role == "user" else "ai", "content": text} for role, text in page],
        "LangChain, serialized": [
            {"lc": 1, "type": "constructor", "kwargs": {"content": text, "additional_kwargs": {}},
             "id": ["langchain", "schema", "messages", "HumanMessage" if role == "user" else "AIMessage"]}
            for role, text in page
        ],
    }
    requests = {name: Request(USER, TALK, "shape", "When are you open?", value) for name, value in spellings.items()}
    # A client may as well send the question as the last of its messages: it is not repeated.
    with_question = [*spellings["messages, OpenAI"], said("user", "When are you open?")]
    requests["the question among them"] = Request(USER, TALK, "shape", "When are you open?", with_question)
    prompts = {
        size: {name: demo.backend(size=size).prompt(request) for name, request in requests.items()} for size in (60, 4)
    }
    report.table(
        ["the client sends", "ckpt_load gets", "window of 60", "window of 4"],
        [
            [name, *conversation_of(request), *(f"{len(prompts[size][name])} messages" for size in prompts)]
            for name, request in requests.items()
        ],
    )
    for size, by_name in prompts.items():
        same = [name for name, prompt in by_name.items() if prompt == by_name["thread id"]]
        report.check(len(same) == len(requests), f"windows of {size}: the same prompt, whatever the client sends", same)
