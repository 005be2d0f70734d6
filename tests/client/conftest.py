"""The fixtures. CKPT_TEST_URI names a superuser's connection to a server that is there for the tests alone; the other
variables are described in tools/throwaway.sh."""

import itertools
import os
from urllib.parse import urlsplit, urlunsplit

import pytest

from support import Calls, Cluster, Programs, connect

TEMPLATE = "client_template"
numbers = itertools.count(1)


@pytest.fixture(scope="session")
def admin():
    """A superuser's connection to the database `postgres`."""
    with connect(os.environ["CKPT_TEST_URI"]) as connection:
        yield connection


@pytest.fixture(scope="session")
def uri():
    """The connection URI of a database by its name."""
    parts = urlsplit(os.environ["CKPT_TEST_URI"])
    return lambda database: urlunsplit(parts._replace(path=f"/{database}"))


@pytest.fixture(scope="session")
def template(admin, uri):
    """A database with the extension, to copy."""
    admin.execute(f"CREATE DATABASE {TEMPLATE} ENCODING 'UTF8' TEMPLATE template0")
    with connect(uri(TEMPLATE)) as connection:
        connection.execute("CREATE EXTENSION checkpointer")
    return TEMPLATE


@pytest.fixture(scope="session")
def make_database(admin):
    """Makes databases, by default without the extension; they are dropped with the server."""

    def make(template="template0", options=""):
        name = f"client_{next(numbers)}"
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} {options}")
        return name

    return make


@pytest.fixture(scope="module")
def database(make_database, template):
    """A database with the extension in the schema public, for the tests of one file."""
    return make_database(template)


@pytest.fixture
def connection_to(uri):
    """Opens connections to a database by its name, and closes them after the test."""
    opened = []

    def open_connection(name, **options):
        opened.append(connect(uri(name), **options))
        return opened[-1]

    yield open_connection
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(connection_to, database):
    return connection_to(database)


@pytest.fixture
def calls(connection):
    """The extension's functions over one connection that commits each call."""
    return Calls(connection)


@pytest.fixture(scope="module")
def module_calls(uri, database):
    """The functions in the file's database, for a property test, whose examples share their fixtures."""
    with connect(uri(database)) as connection:
        yield Calls(connection)


@pytest.fixture
def sessions(connection_to, database):
    """Opens so many sessions of the file's database."""
    return lambda count, **options: [Calls(connection_to(database, **options)) for _ in range(count)]


@pytest.fixture
def thread():
    """A thread id that no other test uses."""
    return f"thread-{next(numbers)}"


@pytest.fixture(scope="session")
def programs():
    return Programs(os.environ["CKPT_PG_BIN"], os.environ["CKPT_RUN_AS"], os.environ["CKPT_SCRATCH"])


@pytest.fixture
def make_cluster(programs):
    """Makes clusters of the test's own, and removes them after it."""
    made = []

    def make():
        made.append(Cluster(programs))
        return made[-1]

    yield make
    for cluster in reversed(made):
        cluster.remove()
