#!/usr/bin/env python3
"""An agent that may be killed at any instant. It remembers nothing; the database does.

    agent.py --uri URI THREAD FILE [THREAD FILE ...]

Each FILE holds one recorded conversation (a line of samples.jsonl); the recording stands in for the model and the tools.
The agent talks SQL and nothing else, and the whole of its crash safety is this loop:

    resume   what does the database know?          ckpt_resume
    run      only what has not finished,           the tools in `todo`
             logging each result at once           ckpt_put_writes
    fold     the results into the next checkpoint  ckpt_apply_writes

Kill it wherever you like and start it again: it goes on where the database says.
"""

import argparse
import json
import os
import sys

import psycopg
from psycopg.rows import namedtuple_row

import conversations

# How each channel of the state takes what the tasks of a step wrote to it.
REDUCERS = json.dumps({"messages": "append", "tools_run": "sum"})


class Agent:
    def __init__(self, uri, journal=None, lockstep=False):
        # Autocommit: every call below is its own transaction, except where a `with conn.transaction()` says otherwise.
        self.conn = psycopg.connect(uri, autocommit=True, application_name=f"resume demo, agent {os.getpid()}")
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if journal else None
        self.lockstep = lockstep

    def converse(self, thread, talk):
        """Works through one conversation, from wherever an earlier process left it."""
        # One agent per thread. A session's lock falls when Postgres notices that a killed agent is gone, which is
        # after it has finished or undone what that agent last sent: what we read from here on is settled.
        self.ask("SELECT pg_advisory_lock(hashtextextended(%s, 0))", thread)
        self.note("open", thread)
        turn = self.first_turn_to_send(thread, talk)
        while True:
            row = self.resume(thread, talk)
            step = step_of(row.next) if row.next else len(talk.steps) + 1
            # The log: a turn is sent when the last of its steps is done.
            while turn < len(talk.turns) and talk.turns[turn].steps < step:
                self.append_turn(thread, talk.turns[turn])
                turn += 1
            if not row.next:
                break
            # The state: run what has not finished, then fold.
            calls = {call.task: call for call in talk.steps[step - 1]}
            for task in row.todo:
                self.run(thread, row.checkpoint_id, calls[task])
            self.fold(thread, row.checkpoint_id, talk, step)
        self.note("done", thread)
        self.ask("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", thread)

    def resume(self, thread, talk):
        """What the database knows of the thread. A thread it does not know yet is begun."""
        query = "SELECT checkpoint_id, next, todo FROM ckpt_resume(%s)"
        row = self.ask(query, thread)
        if row is None:
            # expected_latest => '' says: only if there is no checkpoint yet. So a second start cannot begin it anew.
            state = json.dumps({"conversation": talk.id, "messages": []})
            self.ask(
                "SELECT ckpt_put(%s, %s::json, next => %s::text[], expected_latest => '')",
                thread, state, tasks_of_step(talk, 1),
            )
            row = self.ask(query, thread)
        return row

    def run(self, thread, checkpoint, call):
        """Runs one tool and logs its result."""
        self.note("begin", thread, call.task)
        if call.in_database:
            # The effect lies in this database, so it commits together with the log entry: both or neither. That
            # makes it exactly once. Nothing stored means that the result was logged before: then undo the effect.
            with self.conn.transaction():
                self.ask(
                    "INSERT INTO resume_demo.bookings (thread, task, tool, pid) VALUES (%s, %s, %s, %s) RETURNING task",
                    thread, call.task, call.tool, os.getpid(),
                )
                self.note("ran", thread, call.task)
                if not self.log(thread, checkpoint, call):
                    raise psycopg.Rollback()
        else:
            # The effect lies outside (here: the line in the journal). If we die between the two, the next agent
            # cannot know that the tool ran, and runs it again: at least once. Such a tool should bear repetition.
            self.note("ran", thread, call.task)
            self.log(thread, checkpoint, call)
        self.note("logged", thread, call.task)

    def log(self, thread, checkpoint, call):
        """Logs a task's writes, [[channel, value], ...]; returns how many were stored: 0 if they were there already."""
        writes = f'[["messages", {call.result}], ["tools_run", 1]]'
        return self.ask(
            "SELECT ckpt_put_writes(%s, %s, %s, %s::json, task_path => %s)",
            thread, checkpoint, call.task, writes, call.path,
        )[0]

    def fold(self, thread, checkpoint, talk, step):
        """All results of the step become the next checkpoint, whose `next` are the following step's tasks.

        Folding twice gives the same checkpoint, so dying right after it does no harm.
        """
        self.ask(
            "SELECT ckpt_apply_writes(%s, checkpoint_id => %s, reducers => %s::jsonb, next => %s::text[],"
            " metadata => %s::json)",
            thread, checkpoint, REDUCERS, tasks_of_step(talk, step + 1), json.dumps({"step": step}),
        )
        self.note("folded", thread)

    def first_turn_to_send(self, thread, talk):
        """The turn to begin the log with: the last one that is there, since we cannot know whether we saw its answer."""
        stored = self.ask("SELECT coalesce(max(seq), 0) FROM ckpt_messages(%s)", thread)[0]
        turn = 0
        while turn + 1 < len(talk.turns) and stored > len(talk.turns[turn].messages):
            stored -= len(talk.turns[turn].messages)
            turn += 1
        return turn

    def append_turn(self, thread, turn):
        """Sends a turn to the message log, twice, as a network that retries would. The second is a no-op."""
        for _ in range(2):
            self.ask(
                "SELECT count(*) FROM ckpt_append(%s, %s::json, turn => %s)",
                thread, "[" + ",".join(turn.messages) + "]", turn.name,
            )
            self.note("appended", thread)

    def ask(self, query, *values):
        """One statement, one round trip; returns its first row."""
        with self.conn.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(query, values).fetchone()

    def note(self, what, thread, task=""):
        """Tells what has just happened: to the journal, which is also the tools' outside effect, and to the supervisor.

        Plain write(2): what it has handed over survives a SIGKILL. In lockstep it waits to be told to go on.
        """
        line = json.dumps([what, os.getpid(), thread, task]).encode() + b"\n"
        if self.journal is not None:
            os.write(self.journal, line)
        os.write(sys.stdout.fileno(), line)
        if self.lockstep and not sys.stdin.readline():
            sys.exit("the supervisor is gone")


def tasks_of_step(talk, step):
    """What a model would decide here: the tool calls of the next step; none after the last."""
    return [call.task for call in talk.steps[step - 1]] if step <= len(talk.steps) else []


def step_of(tasks):
    return int(tasks[0].split("/")[0])


def main():
    parser = argparse.ArgumentParser(description="Works through recorded conversations; may be killed at any instant.")
    parser.add_argument("--uri", required=True, help="connection URI of the database")
    parser.add_argument("--journal", metavar="FILE", help="append a line per event to this file")
    parser.add_argument("--lockstep", action="store_true", help="after each event wait for a line on standard input")
    parser.add_argument("work", nargs="+", metavar="THREAD FILE", help="a thread id and the conversation to work through")
    options = parser.parse_args()
    if len(options.work) % 2:
        parser.error("THREAD and FILE come in pairs")
    agent = Agent(options.uri, options.journal, options.lockstep)
    for thread, file in zip(options.work[::2], options.work[1::2]):
        agent.converse(thread, conversations.read(file)[0])


if __name__ == "__main__":
    main()
