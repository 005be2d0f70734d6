#!/usr/bin/env python3
"""Shows the memory of a retrieval chat: its own tables for users and billing, the checkpointer's log for the model.

    run.py --uri URI [--schema SCHEMA]

Makes the schema chat_demo anew and threads named chat-demo/..., which replace those of the run before. The exit status is 0 only
if every check held, and 2 if nothing was run.
"""

import argparse
import sys

import psycopg

import inspection
import parts_background
import parts_requests
from demo import THREADS, Demo
from memory import Memory
from report import Report
from scripted import ModelFailed
from store import SCHEMA

PARTS = [
    parts_requests.two_views,
    parts_requests.retries,
    parts_requests.leaks,
    parts_requests.shapes,
    parts_background.summaries,
    parts_background.facts_from_messages,
    parts_background.independence,
]


class CannotRun(Exception):
    """The demonstration has not begun, and why."""


def prepare(conn, schema):
    """An empty schema and empty threads; returns the versions of what is used."""
    versions, problem = inspection.find_extension(conn, schema)
    if problem:
        raise CannotRun(problem)
    if not conn.execute("SELECT pg_try_advisory_lock(hashtextextended('chat_demo', 0))").fetchone()[0]:
        raise CannotRun("another demonstration is running in this database")
    memory = Memory(conn, schema)
    for thread in THREADS:
        memory.delete(thread)
    conn.execute("DROP SCHEMA IF EXISTS chat_demo CASCADE")
    conn.execute(SCHEMA)
    return versions


def main():
    parser = argparse.ArgumentParser(description="Shows the memory of a retrieval chat, and checks it.")
    parser.add_argument("--uri", required=True, help="connection URI of a database with the extension checkpointer")
    parser.add_argument("--schema", help="the schema of the extension, if it is not on the search_path")
    options = parser.parse_args()
    report = Report()
    try:
        # Autocommit: each statement is its own transaction, except where a `with conn.transaction()` says otherwise.
        conn = psycopg.connect(options.uri, autocommit=True, application_name="chat demo")
        versions = prepare(conn, options.schema)
    except (CannotRun, psycopg.Error) as error:
        print(f"nothing was run: {error}", file=sys.stderr)
        return 2
    print(versions)
    try:
        with conn:
            demo = Demo(report, options.uri, options.schema, conn)
            for part in PARTS:
                part(demo)
    except (psycopg.Error, ModelFailed) as error:
        report.check(False, f"the demonstration comes to its end: {error}")
    except KeyboardInterrupt:
        report.check(False, "the demonstration comes to its end: interrupted")
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
