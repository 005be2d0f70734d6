"""Whatever the caller's search_path holds, and wherever the extension stands, its functions work on its own tables."""

import psycopg
import pytest

from answers import answers, contents, fill
from support import ALL_TABLES, TABLES, Calls, connect, quoted, refused

SCHEMAS = ["agent_memory", "my-app", "Upper Case", "Über", "select", "a.b", "100% %I", "s" * 63]
HOSTILE_NAMES = [*ALL_TABLES, "pg_class", "pg_proc", "pg_namespace", "unnest", "json", "text", "new", "old", "chain"]

HOSTILE_OBJECTS = """
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.raises() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hostile'; END $$;
CREATE FUNCTION hostile.count() RETURNS bigint LANGUAGE sql AS 'SELECT hostile.raises()::int::bigint';
CREATE DOMAIN hostile.json AS pg_catalog.int4;
CREATE DOMAIN hostile.jsonb AS pg_catalog.int4;
CREATE DOMAIN hostile.text AS pg_catalog.int4;
CREATE DOMAIN hostile.int4 AS pg_catalog.bool;
CREATE DOMAIN hostile.int8 AS pg_catalog.bool;
CREATE DOMAIN hostile.bytea AS pg_catalog.bool;
"""


@pytest.fixture
def place(make_database, connection_to):
    """Makes a database with the extension in a schema, and gives a superuser's calls."""

    def make(schema, database=None):
        connection = connection_to(database or make_database())
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        connection.execute(f"CREATE EXTENSION checkpointer SCHEMA {quoted(schema)}")
        return Calls(connection, schema)

    return make


def works(calls, prefix):
    """Writes and reads with every function, and finds what was written in the extension's tables alone."""
    threads = fill(calls, prefix)
    assert answers(calls, threads)
    for thread in threads:
        assert calls.sql("SELECT 1 FROM @s.checkpoints WHERE thread_id OPERATOR(pg_catalog.=) %s", thread)
        assert calls.value("ckpt_delete_thread", thread) > 0
        for table in TABLES:
            assert calls.count(table, thread) == 0
    calls.value("ckpt_grant", "pg_monitor", "read")
    assert calls.sql("SELECT role_name, level FROM @s.checkpoint_grants") == [("pg_monitor", "read")]
    calls.value("ckpt_revoke", "pg_monitor")
    assert calls.count("checkpoint_grants") == 0


@pytest.mark.needs_session
def test_with_an_empty_search_path(place):
    calls = place("public")
    calls.connection.execute("SET search_path = ''")
    works(calls, "empty")


@pytest.mark.needs_session
def test_with_hostile_temporary_tables(place):
    calls = place("public")
    for name in HOSTILE_NAMES:
        calls.connection.execute(f"CREATE TEMPORARY TABLE {quoted(name)} (hostile int)")
    calls.connection.execute("SET search_path = pg_temp, public, pg_catalog")
    works(calls, "temporary")
    for name in HOSTILE_NAMES:
        assert calls.sql(f"SELECT pg_catalog.count(*) FROM pg_temp.{quoted(name)}") == [(0,)]


@pytest.mark.needs_session
def test_with_temporary_tables_of_the_same_shape(place):
    calls = place("public")
    fill(calls, "kept")
    before = contents(calls)
    for name in ALL_TABLES:
        calls.connection.execute(f"CREATE TEMPORARY TABLE {name} (LIKE public.{name} INCLUDING ALL)")
    calls.connection.execute("SET search_path = pg_temp, public")
    works(calls, "same-shape")
    assert contents(calls) == before
    for name in ALL_TABLES:
        assert calls.sql(f"SELECT pg_catalog.count(*) FROM pg_temp.{name}") == [(0,)]


def make_hostile(connection):
    """A schema to stand before pg_catalog: every operator that takes two of a type that the functions use raises."""
    connection.execute(HOSTILE_OBJECTS)
    types = ["text", "int4", "int8", "bytea", "jsonb", "bool"]
    for kind in types:
        arguments = f"pg_catalog.{kind}, pg_catalog.{kind}"
        connection.execute(
            f"CREATE FUNCTION hostile.raises({arguments}) RETURNS boolean LANGUAGE sql AS 'SELECT hostile.raises()'"
        )
        for operator in ("=", "<>", "<", ">", "<=", ">=", "+", "-", "@>", "||"):
            connection.execute(
                f"CREATE OPERATOR hostile.{operator} (FUNCTION = hostile.raises, "
                f"LEFTARG = pg_catalog.{kind}, RIGHTARG = pg_catalog.{kind})"
            )
    for name in ("format", "quote_ident", "clock_timestamp", "unnest", "now", "lower", "length"):
        for arguments in ("", "pg_catalog.text", "pg_catalog.text, pg_catalog.text", "pg_catalog.anyarray"):
            connection.execute(
                f"CREATE FUNCTION hostile.{name}({arguments}) RETURNS boolean LANGUAGE sql AS 'SELECT hostile.raises()'"
            )
    connection.execute("SET search_path = hostile, pg_catalog, public")


@pytest.mark.needs_session
def test_the_hostile_schema_is_hostile(place):
    calls = place("public")
    make_hostile(calls.connection)
    with refused("P0001"):
        calls.connection.execute("SELECT 'a'::pg_catalog.text = 'b'::pg_catalog.text")
    with refused("P0001"):
        calls.connection.execute("SELECT count()")
    with refused("22P02"):
        calls.connection.execute("SELECT '{}'::\"json\"")


@pytest.mark.needs_session
def test_with_hostile_operators_functions_and_types(place):
    calls = place("public")
    make_hostile(calls.connection)
    works(calls, "hostile")


@pytest.mark.needs_session
def test_created_with_a_hostile_search_path(make_database, connection_to):
    connection = connection_to(make_database())
    make_hostile(connection)
    connection.execute("CREATE EXTENSION checkpointer SCHEMA public")
    works(Calls(connection), "created")


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.needs_session
def test_in_any_schema(place, schema):
    calls = place(schema)
    works(calls, "anywhere")
    calls.connection.execute("SET search_path = ''")
    works(calls, "anywhere")


@pytest.mark.parametrize("schema", ['Über "q"', "it's", "a$b", "back\\slash"])
def test_a_schema_that_postgres_does_not_allow_is_refused_cleanly(make_database, connection_to, schema):
    connection = connection_to(make_database())
    connection.execute(f"CREATE SCHEMA {quoted(schema)}")
    with pytest.raises(psycopg.DataError) as refusal:
        connection.execute(f"CREATE EXTENSION checkpointer SCHEMA {quoted(schema)}")
    assert refusal.value.diag.message_primary.startswith('invalid character in extension "checkpointer" schema')
    assert connection.execute("SELECT 1 FROM pg_class WHERE relname LIKE 'checkpoint%'").fetchall() == []


def test_in_two_schemas_of_two_databases_at_once(place):
    one, other = place("one"), place("other")
    for calls in (one, other):
        calls.value("ckpt_put", "t", f'{{"where": "{calls.schema}"}}')
    for calls in (one, other):
        assert calls.value("ckpt_channel", "t", "where") == f'"{calls.schema}"'
        assert calls.count("checkpoints") == 1


def test_a_session_goes_on_after_its_schema_was_renamed(place):
    calls = place("before")
    threads = fill(calls, "renamed")
    expected = answers(calls, threads)
    for schema in ("after", "my-app", "before"):
        calls.connection.execute(f"ALTER SCHEMA {quoted(calls.schema)} RENAME TO {quoted(schema)}")
        calls.schema = schema
        assert answers(calls, threads) == expected
        works(calls, f"in {schema}")


def test_a_session_goes_on_where_a_schema_took_the_name_of_the_old_one(place):
    calls = place("memory")
    threads = fill(calls, "moved")
    expected = answers(calls, threads)
    calls.connection.execute("ALTER SCHEMA memory RENAME TO old")
    calls.connection.execute("CREATE SCHEMA memory")
    for table in ALL_TABLES:
        calls.connection.execute(f"CREATE TABLE memory.{table} (LIKE old.{table} INCLUDING ALL)")
    calls.schema = "old"
    assert answers(calls, threads) == expected
    works(calls, "after the move")
    for table in ALL_TABLES:
        assert calls.sql(f"SELECT pg_catalog.count(*) FROM memory.{table}") == [(0,)]


def test_a_session_goes_on_after_the_extension_was_made_anew_elsewhere(place):
    calls = place("first")
    works(calls, "first")
    for schema in ("second", "first", "first"):
        calls.connection.execute("DROP EXTENSION checkpointer")
        calls.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        calls.connection.execute(f"CREATE EXTENSION checkpointer SCHEMA {schema}")
        calls.schema = schema
        works(calls, schema)


def test_a_session_goes_on_after_another_one_renamed_the_schema(place, uri):
    calls = place("before")
    works(calls, "before")
    with connect(uri(calls.connection.info.dbname)) as other:
        other.execute("ALTER SCHEMA before RENAME TO after")
    calls.schema = "after"
    works(calls, "after")


def test_a_rename_that_is_rolled_back_leaves_the_session_working(place):
    calls = place("before")
    works(calls, "before")
    with calls.connection.transaction(force_rollback=True):
        calls.connection.execute("ALTER SCHEMA before RENAME TO after")
        calls.schema = "after"
        calls.value("ckpt_put", "t", "{}")
    calls.schema = "before"
    works(calls, "before again")
    assert calls.count("checkpoints") == 0


def test_it_cannot_be_moved_to_another_schema(place):
    calls = place("here")
    calls.connection.execute("CREATE SCHEMA there")
    with refused("0A000"):
        calls.connection.execute("ALTER EXTENSION checkpointer SET SCHEMA there")
