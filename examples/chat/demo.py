"""What the parts of the demonstration share."""

import psycopg

from backend import Backend
from memory import Memory
from scripted import Model
from store import Store

USER = "reader-1"
TALK, RETRY, LONG = THREADS = "chat-demo/talk", "chat-demo/retry", "chat-demo/long"


class Demo:
    def __init__(self, report, uri, schema, conn):
        self.report = report
        self.uri = uri
        self.schema = schema
        self.conn = conn
        self.memory = Memory(conn, schema)
        self.store = Store(conn)
        self.model = Model()

    def connect(self):
        conn = psycopg.connect(self.uri, autocommit=True, application_name="chat demo")
        # Who waits for a table that it should not even look at fails, instead of hanging.
        conn.execute("SET statement_timeout = '10s'")
        return conn

    def backend(self, conn=None, model=None, **limits):
        conn = conn or self.conn
        return Backend(conn, Store(conn), Memory(conn, self.schema), model or self.model, **limits)
