#!/usr/bin/env python3
"""The work that no request waits for: summaries of what no longer fits in the window, and facts.

    worker.py --uri URI [--schema SCHEMA]

Goes through all threads once; run it from a timer, as many at a time as you like.
"""

import argparse
import sys

import psycopg

import facts
from memory import Memory
from scripted import CheapModel, ModelFailed

# The window shows 60 messages, and all but the last 40 are summarised, ten or more at a time: so the summary is there before a
# message falls out of the window.
KEEP, EVERY = 40, 10


def summarise_due(memory, thread, model, keep=KEEP, every=EVERY, lease="1 minute"):
    """Makes the summary of a thread, if one is due; returns what came of it.

    The model is asked outside of any transaction, and no lock is held while it thinks: the lease keeps others away, and runs out
    by itself if this process dies. Until there is a summary, windows show an older one and an extract, so a failure costs nothing.
    """
    job = memory.summary_due(thread, size=keep, every=every, lease=lease)
    if job is None:
        return "not due"
    try:
        summary = model.summarise(job.previous_summary, job.messages)
    except ModelFailed:
        return "failed"
    try:
        memory.put_summary(thread, job, summary)
    except psycopg.errors.SerializationFailure:
        # 40001: the messages were edited or taken back meanwhile. What we have may tell what it must not: away with it.
        return "dropped"
    return "stored"


def main():
    parser = argparse.ArgumentParser(description="Makes the summaries and extracts the facts that are due.")
    parser.add_argument("--uri", required=True, help="connection URI of the database")
    parser.add_argument("--schema", help="the schema of the extension, if it is not on the search_path")
    options = parser.parse_args()
    model = CheapModel()
    # Autocommit: a job is handed out and put back in transactions of their own.
    with psycopg.connect(options.uri, autocommit=True, application_name="chat demo, worker") as conn:
        memory = Memory(conn, options.schema)
        for thread, in conn.execute("SELECT thread_id FROM chat_demo.threads ORDER BY thread_id").fetchall():
            outcome = summarise_due(memory, thread, model)
            while outcome in ("dropped", "stored"):  # again until nothing is due
                print(f"{thread}: summary {outcome}")
                outcome = summarise_due(memory, thread, model)
            while (new := facts.extract_due(conn, thread, model)) is not None:
                print(f"{thread}: {new} new facts")


if __name__ == "__main__":
    try:
        main()
    except psycopg.Error as error:
        sys.exit(f"worker: {error}")
