"""The fixtures. CKPT_TEST_URI names a superuser's connection to a server that is there for the tests alone; the other
variables are described in tools/throwaway.sh.

With CKPT_POOLER (tools/pooler.sh) the connections of the fixtures go through a pooler that gives each transaction to another
session of the server. CKPT_PREPARES says whether the clients prepare statements there. A test or file whose subject is a
session is marked `needs_session` and has direct connections: it sets something for a session, changes the role or the search
path, makes temporary tables, or names a session by its number."""

import itertools
import os
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit, urlunsplit

import pytest

from support import Calls, Cluster, Programs, connect

TEMPLATE = "client_template"
POOLER = os.environ.get("CKPT_POOLER")
# Clients that do not prepare statements use the extended protocol with unnamed ones.
POOLED = {"prepare_threshold": 0 if os.environ.get("CKPT_PREPARES") == "yes" else None}
numbers = itertools.count(1)


def pytest_addoption(parser):
    parser.addoption("--pooled", action="store_true", help="only the tests that go through the pooler")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_session: has direct connections even if there is a pooler (see conftest.py)")


def is_pooled(node):
    return bool(POOLER) and node.get_closest_marker("needs_session") is None


def pytest_collection_modifyitems(config, items):
    if config.getoption("--pooled"):
        chosen = [item for item in items if is_pooled(item) and {"connection_to", "module_calls"} & set(item.fixturenames)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def uri_in(server):
    """The URI of a database by its name."""
    parts = urlsplit(server)
    return lambda database: urlunsplit(parts._replace(path=f"/{database}"))


def spread(open_connection):
    """Makes the pooler open several sessions to a database, so that a client's transactions have some to go round."""
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(open_connection(autocommit=False)).execute("SELECT 1")
    with open_connection(autocommit=True) as connection:
        sessions = {connection.execute("SELECT pg_backend_pid()").fetchone() for _ in range(3)}
    assert len(sessions) > 1, "the pooler gives a client the same session again and again"


@pytest.fixture(scope="session")
def admin():
    """A superuser's connection to the database `postgres`."""
    with connect(os.environ["CKPT_TEST_URI"]) as connection:
        yield connection


@pytest.fixture(scope="session")
def uri():
    """The URI of direct connections to a database by its name."""
    return uri_in(os.environ["CKPT_TEST_URI"])


@pytest.fixture(scope="session")
def pooled():
    """Opens a connection through the pooler."""
    spread_over = set()

    def open_connection(name, **options):
        open_one = partial(connect, uri_in(POOLER)(name), **(POOLED | options))
        if name not in spread_over:
            spread_over.add(name)
            spread(open_one)
        return open_one()

    return open_connection


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
def connection_to(request, uri, pooled):
    """Opens connections to a database by its name, and closes them after the test."""
    opened = []
    through_pooler = is_pooled(request.node)

    def open_connection(name, **options):
        opened.append(pooled(name, **options) if through_pooler else connect(uri(name), **options))
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
def module_calls(request, uri, pooled, database):
    """The functions in the file's database, for a property test, whose examples share their fixtures."""
    with pooled(database) if is_pooled(request.node) else connect(uri(database)) as connection:
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
