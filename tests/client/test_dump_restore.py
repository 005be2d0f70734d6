"""pg_dump carries everything into a new cluster: every function gives the same answers there, and writing goes on."""

import json
import os

import pytest

from answers import answers, contents, fill
from support import Calls, connect, refused

TENANTS = ("", "acme")
ROLES = {"dump_reader": "read", "dump writer": "write"}

pytestmark = pytest.mark.needs_session


def use_tenant(calls, tenant):
    calls.sql("SELECT pg_catalog.set_config('checkpointer.tenant', %s, false)", tenant)


def all_answers(calls, threads):
    found = {}
    for tenant in TENANTS:
        use_tenant(calls, tenant)
        found[tenant] = answers(calls, threads)
    use_tenant(calls, "")
    return found


@pytest.fixture(scope="module")
def roles(admin):
    for role in ROLES:
        admin.execute(f'CREATE ROLE "{role}"')
    return ROLES


@pytest.fixture
def source(make_database, connection_to, roles):
    """A filled database, with the extension in a schema of its own, and the thread ids."""
    calls = Calls(connection_to(make_database()), "agent_memory")
    calls.connection.execute("CREATE SCHEMA agent_memory")
    calls.connection.execute("CREATE EXTENSION checkpointer SCHEMA agent_memory")
    for tenant in TENANTS:
        use_tenant(calls, tenant)
        threads = fill(calls)
    use_tenant(calls, "")
    for role, level in roles.items():
        calls.value("ckpt_grant", role, level)
    # A table of the application's own that builds on a function of the extension.
    calls.connection.execute(
        "CREATE TABLE said (body text, id text GENERATED ALWAYS AS (agent_memory.msg_id('t', 'user', body)) STORED UNIQUE)"
    )
    calls.connection.execute("INSERT INTO said VALUES ('hi'), ('ho')")
    return calls, threads


def dump(programs, info, path, *options):
    environment = {"PGPASSWORD": info.password}
    server = ["-h", info.host, "-p", str(info.port), "-U", info.user, "-d", info.dbname]
    programs.run("pg_dump", *server, "-f", path, *options, environment=environment)


@pytest.fixture(params=["custom format", "plain SQL"])
def restored(request, source, programs, make_cluster):
    """The source's dump in a new cluster."""
    calls, _ = source
    cluster = make_cluster().init().start()
    with connect(cluster.uri()) as admin:
        admin.execute("CREATE DATABASE restored TEMPLATE template0")
        for role in ROLES:
            admin.execute(f'CREATE ROLE "{role}"')
    path = os.path.join(programs.scratch, "dump")
    if request.param == "plain SQL":
        dump(programs, calls.connection.info, path)
        programs.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", cluster.uri("restored"), "-f", path)
    else:
        dump(programs, calls.connection.info, path, "-Fc")
        programs.run("pg_restore", "--exit-on-error", "-d", cluster.uri("restored"), path)
    programs.remove(path)
    with connect(cluster.uri("restored")) as connection:
        yield Calls(connection, calls.schema)


def test_everything_is_there_and_writing_goes_on(source, restored):
    calls, threads = source
    assert contents(restored) == contents(calls)
    assert all_answers(restored, threads) == all_answers(calls, threads)
    assert restored.sql("SELECT body, id FROM public.said") == calls.sql("SELECT body, id FROM public.said")
    grants_are_there(calls, restored)
    writing_goes_on(calls, restored, threads)


def grants_are_there(calls, restored):
    for role, level in ROLES.items():
        restored.connection.execute(f'SET ROLE "{role}"')
        assert restored.row("ckpt_latest", "fill-0") == calls.row("ckpt_latest", "fill-0")
        if level == "read":
            with refused("42501"):
                restored.value("ckpt_put", "fill-0", "{}")
        with refused("42501"):
            restored.value("ckpt_grant", role, "write")
        restored.connection.execute("RESET ROLE")


def writing_goes_on(calls, restored, threads):
    for thread in threads:
        latest = restored.row("ckpt_latest", thread)
        # What was pending folds there as it folds here.
        tasks = [task for task in ("a", "c") if task in json.loads(restored.row("ckpt_resume", thread).finished)]
        ids = [place.value("ckpt_apply_writes", thread, tasks=tasks, reducers='{"count": "sum"}') for place in (calls, restored)]
        states = [place.value("ckpt_state", thread, made) for place, made in zip((calls, restored), ids, strict=True)]
        assert states[0] == states[1] != restored.value("ckpt_state", thread, latest.checkpoint_id)
        made = restored.value("ckpt_put", thread, "{}")
        assert made > max(row.checkpoint_id for row in restored.rows("ckpt_history", thread)[1:])
        assert restored.row("ckpt_latest", thread)[:2] == (made, ids[1])
        # The log was rewound to at least one below its counter, except in the first thread; no seq is used again.
        message = '[{"role": "user", "content": "after the restore"}]'
        [(seq, msg_id, inserted)] = restored.rows("ckpt_append", thread, message)
        assert (seq, inserted) == (25, True)
        assert restored.rows("ckpt_append", thread, message) == [(seq, msg_id, False)]
        assert restored.value("ckpt_delete_thread", thread) > 0
