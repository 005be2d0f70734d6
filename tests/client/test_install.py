"""What CREATE EXTENSION makes, what it refuses, and that a refusal touches nothing."""

import psycopg
import pytest

from support import ALL_TABLES, TABLES, Calls, refused

READING = {
    "ckpt_latest(text,text)",
    "ckpt_channel(text,text,text,text)",
    "ckpt_state(text,text,text,text[])",
    "ckpt_resume(text,text)",
    "ckpt_history(text,text,text,integer)",
    "ckpt_list(text,text,jsonb,text,integer)",
    "ckpt_get_typed(text,text,text)",
    "ckpt_list_typed(text,text,jsonb,text,integer)",
    "ckpt_messages(text,bigint,bigint,integer)",
    "ckpt_window(text,integer,integer,json,json,boolean,boolean)",
    "ckpt_load(json,integer,integer,json,json,boolean,boolean)",
    "ckpt_strip(text)",
}
WRITING = {
    "ckpt_put(text,json,json,text[],text,text,text,text)",
    "ckpt_put_writes(text,text,text,json,text,text,text)",
    "ckpt_apply_writes(text,text,text,text[],jsonb,text[],json)",
    "ckpt_fork(text,text,text)",
    "ckpt_copy_thread(text,text)",
    "ckpt_delete_thread(text,interval)",
    "ckpt_delete_runs(text[])",
    "ckpt_define_graph(text,jsonb)",
    "ckpt_bind(text,text)",
    "ckpt_prune(text[],integer,interval)",
    "ckpt_put_typed(text,text,json,json,text[],text[],bytea[],json,text,text,text)",
    "ckpt_put_writes_typed(text,text,text,text[],text[],bytea[],text,text,text)",
    "ckpt_append(text,json,text,text)",
    "ckpt_rewind(text,bigint)",
    "ckpt_summary_due(text,integer,integer,interval)",
    "ckpt_put_summary(text,bigint,text,interval,bigint)",
    "ckpt_grant(text,text)",
    "ckpt_revoke(text)",
}
PURE = {
    "msg_id(text,text,text,text)",
    "msg_id(text,text,json,text)",
    "ckpt_tokens(text,text)",
    "ckpt_check_markup(text,text,text,text)",
}

# The arguments with their names and defaults, as the documentation gives them: clients call by name.
ARGUMENTS = {
    "ckpt_put": "thread_id text, state json, metadata json = '{}', next text[] = '{}', checkpoint_ns text = '', "
    "checkpoint_id text = NULL, parent_checkpoint_id text = NULL, expected_latest text = NULL",
    "ckpt_latest": "thread_id text, checkpoint_ns text = ''",
    "ckpt_channel": "thread_id text, channel text, checkpoint_id text = NULL, checkpoint_ns text = ''",
    "ckpt_state": "thread_id text, checkpoint_id text = NULL, checkpoint_ns text = '', channels text[] = NULL",
    "ckpt_put_writes": "thread_id text, checkpoint_id text, task_id text, writes json, checkpoint_ns text = '', "
    "task_path text = '', on_conflict text = 'error'",
    "ckpt_resume": "thread_id text, checkpoint_ns text = ''",
    "ckpt_apply_writes": "thread_id text, checkpoint_ns text = '', checkpoint_id text = NULL, tasks text[] = NULL, "
    "reducers jsonb = '{}', next text[] = '{}', metadata json = '{}'",
    "ckpt_history": "thread_id text, checkpoint_id text = NULL, checkpoint_ns text = '', max_rows integer = NULL",
    "ckpt_list": "thread_id text = NULL, checkpoint_ns text = NULL, filter jsonb = NULL, before text = NULL, "
    "max_rows integer = NULL",
    "ckpt_fork": "thread_id text, checkpoint_id text, checkpoint_ns text = ''",
    "ckpt_copy_thread": "thread_id text, target_thread_id text",
    "ckpt_delete_thread": "thread_id text, block_for interval = NULL",
    "ckpt_delete_runs": "run_ids text[]",
    "ckpt_define_graph": "graph text, channels jsonb",
    "ckpt_bind": "thread_id text, graph text",
    "ckpt_prune": "thread_ids text[], keep integer = 1, older_than interval = NULL",
    "ckpt_put_typed": "thread_id text, checkpoint_id text, checkpoint json, versions json, channels text[] = '{}', "
    "types text[] = '{}', bytes bytea[] = '{}', metadata json = '{}', checkpoint_ns text = '', "
    "parent_checkpoint_id text = NULL, expected_latest text = NULL",
    "ckpt_put_writes_typed": "thread_id text, checkpoint_id text, task_id text, channels text[], types text[], "
    "bytes bytea[], checkpoint_ns text = '', task_path text = '', on_conflict text = 'error'",
    "ckpt_get_typed": "thread_id text, checkpoint_ns text = '', checkpoint_id text = NULL",
    "ckpt_list_typed": "thread_id text = NULL, checkpoint_ns text = NULL, filter jsonb = NULL, before text = NULL, "
    "max_rows integer = NULL",
    "ckpt_append": "thread_id text, messages json, turn text = NULL, on_conflict text = 'error'",
    "ckpt_messages": "thread_id text, after bigint = NULL, before bigint = NULL, max_rows integer = NULL",
    "ckpt_rewind": "thread_id text, after_seq bigint",
    "ckpt_window": "thread_id text, size integer = 60, max_tokens integer = NULL, current json = NULL, preamble json = NULL, "
    "strip boolean = true, marker boolean = true",
    "ckpt_load": "request json, size integer = 60, max_tokens integer = NULL, current json = NULL, preamble json = NULL, "
    "strip boolean = true, marker boolean = true",
    "ckpt_strip": "content text",
    "ckpt_tokens": "content text, encoding text = 'o200k_base'",
    "ckpt_check_markup": "kind text, pattern text, keep text, replacement text",
    "ckpt_summary_due": "thread_id text, size integer = 60, every integer = 1, lease interval = '00:01:00'",
    "ckpt_put_summary": "thread_id text, message_count bigint, summary text, ttl interval = NULL, edits bigint = NULL",
    "ckpt_grant": "role text, level text",
    "ckpt_revoke": "role text",
}
CHECKPOINT = "checkpoint_id text, parent_checkpoint_id text, next text[], channels json, metadata json, " + (
    "pending_writes integer, created_at timestamp with time zone"
)
TYPED = "TABLE(kind text, thread_id text, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, " + (
    "checkpoint json, metadata json, created_at timestamp with time zone, task_id text, task_path text, idx integer, "
    "channel text, version json, value_type text, value bytea)"
)
RESULTS = {
    "ckpt_put": "text",
    "ckpt_latest": f"TABLE({CHECKPOINT})",
    "ckpt_channel": "json",
    "ckpt_state": "json",
    "ckpt_put_writes": "integer",
    "ckpt_resume": "TABLE(checkpoint_id text, next text[], finished json, failed json, waiting json, todo text[])",
    "ckpt_apply_writes": "text",
    "ckpt_history": f"TABLE(thread_id text, checkpoint_ns text, {CHECKPOINT})",
    "ckpt_list": f"TABLE(thread_id text, checkpoint_ns text, {CHECKPOINT})",
    "ckpt_fork": "text",
    "ckpt_copy_thread": "bigint",
    "ckpt_delete_thread": "bigint",
    "ckpt_delete_runs": "bigint",
    "ckpt_define_graph": "void",
    "ckpt_bind": "void",
    "ckpt_prune": "bigint",
    "ckpt_put_typed": "text",
    "ckpt_put_writes_typed": "integer",
    "ckpt_get_typed": TYPED,
    "ckpt_list_typed": TYPED,
    "msg_id": "text",
    "ckpt_append": "TABLE(seq bigint, msg_id text, inserted boolean)",
    "ckpt_messages": "TABLE(seq bigint, msg_id text, role text, content text, message json, turn text, "
    "tokens integer, created_at timestamp with time zone)",
    "ckpt_rewind": "bigint",
    "ckpt_window": "TABLE(ordinal integer, kind text, role text, content text, msg_id text, seq bigint, tokens integer, message json)",
    "ckpt_load": "json",
    "ckpt_strip": "text",
    "ckpt_tokens": "integer",
    "ckpt_check_markup": "boolean",
    "ckpt_summary_due": "TABLE(message_count bigint, previous_count bigint, previous_summary text, messages json, edits bigint, "
    "lease_until timestamp with time zone)",
    "ckpt_put_summary": "void",
    "ckpt_grant": "void",
    "ckpt_revoke": "void",
}

MEMBERS = """
SELECT d.objid FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'checkpointer'
  AND d.classid = '{}'::regclass
"""
FUNCTIONS = MEMBERS.format("pg_proc")
RELATIONS = MEMBERS.format("pg_class")


def names(calls, statement):
    return {row[0] for row in calls.sql(statement)}


def labels(calls):
    rows = calls.sql(
        f"SELECT p.oid::regprocedure::text, p.provolatile, p.proparallel, p.proisstrict FROM pg_proc p WHERE oid IN ({FUNCTIONS})"
    )
    return {signature: (volatility, parallel, strict) for signature, volatility, parallel, strict in rows}


def test_the_functions_are_those_of_the_contract(calls):
    public = {signature for signature in labels(calls) if signature.startswith(("ckpt_", "msg_id("))}
    assert public == READING | WRITING | PURE


def test_helpers_have_names_of_their_own(calls):
    helpers = labels(calls).keys() - READING - WRITING - PURE
    assert all(signature.startswith("checkpoint_") for signature in helpers)


def test_labels_are_true(calls):
    found = labels(calls)
    assert {found[signature] for signature in READING} == {("s", "s", False)}
    assert {found[signature] for signature in WRITING} == {("v", "u", False)}
    assert found["checkpoint_markup_guard()"] == ("v", "u", False)
    assert {found[signature] for signature in PURE} == {("i", "s", False)}


def normalised(arguments):
    """`x text DEFAULT 'a'::text` as `x text = 'a'`."""
    for kind in ("text[]", "bytea[]", "text", "json", "jsonb", "integer", "bigint", "boolean", "interval"):
        arguments = arguments.replace(f"::{kind},", ",").removesuffix(f"::{kind}")
    return arguments.replace(" DEFAULT ", " = ")


def test_arguments_have_the_names_order_and_defaults_of_the_contract(calls):
    rows = calls.sql(
        f"SELECT proname, pg_get_function_arguments(oid) FROM pg_proc WHERE oid IN ({FUNCTIONS}) AND proname LIKE 'ckpt%'"
    )
    assert {name: normalised(arguments) for name, arguments in rows} == ARGUMENTS
    rows = calls.sql("SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = 'msg_id'")
    assert {normalised(row[0]) for row in rows} == {
        f"thread_id text, role text, content {kind}, turn text = ''" for kind in ("text", "json")
    }


def test_results_have_the_columns_of_the_contract(calls):
    rows = calls.sql(
        f"SELECT proname, pg_get_function_result(oid) FROM pg_proc WHERE oid IN ({FUNCTIONS}) AND proname !~ '^checkpoint_'"
    )
    assert dict(rows) == RESULTS


def test_a_function_that_runs_sql_of_its_own_pins_the_search_path_with_temporary_tables_last(calls):
    rows = calls.sql(
        "SELECT p.oid::regprocedure::text, p.proconfig FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang "
        f"WHERE p.oid IN ({FUNCTIONS}) AND l.lanname <> 'c'"
    )
    for signature, settings in rows:
        assert settings == ["search_path=pg_catalog, pg_temp"], signature


def test_no_function_runs_with_its_owners_rights(calls):
    assert calls.sql(f"SELECT oid FROM pg_proc WHERE oid IN ({FUNCTIONS}) AND prosecdef") == []


def test_everything_has_a_comment(calls):
    for catalog, members in (("pg_proc", FUNCTIONS), ("pg_class", RELATIONS)):
        rows = calls.sql(f"SELECT oid::text FROM ({members}) m (oid) WHERE obj_description(oid, '{catalog}') IS NULL")
        assert rows == []
    assert calls.sql("SELECT obj_description(oid, 'pg_extension') IS NOT NULL FROM pg_extension WHERE extname = 'checkpointer'") == [
        (True,)
    ]


def test_public_may_do_nothing(calls):
    calls.connection.execute("CREATE ROLE nobody_in_particular")
    for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"):
        rows = calls.sql(
            f"SELECT oid::regclass FROM ({RELATIONS}) m (oid) "
            f"WHERE has_table_privilege('nobody_in_particular', oid, '{privilege}')"
        )
        assert rows == []
    rows = calls.sql(
        f"SELECT oid::regprocedure FROM ({FUNCTIONS}) m (oid) WHERE has_function_privilege('nobody_in_particular', oid, 'EXECUTE')"
    )
    assert rows == []


def test_the_tables_are_those_of_the_contract_and_dumped_with_all_their_rows(calls):
    tables = names(calls, f"SELECT relname FROM pg_class WHERE oid IN ({RELATIONS}) AND relkind IN ('r', 'p', 'S')")
    assert tables == set(ALL_TABLES)
    [(configured, conditions)] = calls.sql(
        "SELECT ARRAY(SELECT c::regclass::text FROM unnest(extconfig) c), extcondition FROM pg_extension "
        "WHERE extname = 'checkpointer'"
    )
    assert set(configured) == tables
    # The shipped rules come with the extension itself.
    assert dict(zip(configured, conditions)) == {table: "" for table in tables} | {
        "checkpoint_markup": "WHERE NOT shipped OR NOT enabled"
    }


def test_every_key_of_a_per_thread_table_begins_with_thread_and_tenant(calls):
    rows = calls.sql(
        """
        SELECT c.relname, ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k (attnum, at)
                                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum ORDER BY k.at)
        FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
        WHERE c.relname = ANY (%s)
        """,
        list(TABLES),
    )
    assert {name for name, _ in rows} == set(TABLES)
    for name, columns in rows:
        assert columns[:2] == ["thread_id", "tenant"], name


def test_no_foreign_key_crosses_threads(calls):
    rows = calls.sql(f"SELECT conname FROM pg_constraint WHERE contype = 'f' AND conrelid IN ({RELATIONS})")
    assert rows == []


def test_identifiers_compare_by_bytes(calls):
    rows = calls.sql(
        f"""
        SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.oid IN ({RELATIONS}) AND c.relkind = 'r' AND c.relname <> 'checkpoint_grants' AND l.collname <> 'C'
        """
    )
    assert rows == []


CATALOG = """
SELECT 'class', oid::text, relname::text, relnamespace::text, relfilenode::text, relacl::text FROM pg_class WHERE oid >= 16384
UNION ALL SELECT 'attribute', attrelid::text, attname::text, atttypid::text, attnotnull::text, NULL FROM pg_attribute WHERE attrelid >= 16384
UNION ALL SELECT 'proc', oid::text, proname::text, pronamespace::text, prosrc, proacl::text FROM pg_proc WHERE oid >= 16384
UNION ALL SELECT 'type', oid::text, typname::text, NULL, NULL, NULL FROM pg_type WHERE oid >= 16384
UNION ALL SELECT 'namespace', oid::text, nspname::text, nspacl::text, NULL, NULL FROM pg_namespace
UNION ALL SELECT 'extension', oid::text, extname::text, NULL, NULL, NULL FROM pg_extension
UNION ALL SELECT 'constraint', oid::text, conname::text, NULL, NULL, NULL FROM pg_constraint WHERE oid >= 16384
UNION ALL SELECT 'comment', objoid::text, classoid::text, description, NULL, NULL FROM pg_description WHERE objoid >= 16384
UNION ALL SELECT 'depend', objid::text, refobjid::text, deptype::text, classid::text, NULL FROM pg_depend
ORDER BY 1, 2, 3, 4, 5
"""


@pytest.mark.parametrize("table", ALL_TABLES)
@pytest.mark.parametrize("kind", ["TABLE {} (thread_id text)", "VIEW {} AS SELECT 'x'::text AS thread_id"], ids=["table", "view"])
def test_tables_of_another_checkpointer_are_not_touched(make_database, connection_to, table, kind):
    connection = connection_to(make_database())
    connection.execute("CREATE " + kind.format(table))
    if kind.startswith("TABLE"):
        connection.execute(f"INSERT INTO {table} VALUES ('theirs')")
    before = connection.execute(CATALOG).fetchall()
    with refused("42P07") as refusal:
        connection.execute("CREATE EXTENSION checkpointer")
    assert table in refusal.message
    assert "CREATE EXTENSION checkpointer SCHEMA " in refusal.hint
    assert connection.execute(CATALOG).fetchall() == before


def test_the_hint_works_and_the_other_checkpointer_keeps_its_tables(make_database, connection_to):
    connection = connection_to(make_database())
    connection.execute("CREATE TABLE checkpoints (thread_id text)")
    connection.execute("INSERT INTO checkpoints VALUES ('theirs')")
    with refused("42P07") as refusal:
        connection.execute("CREATE EXTENSION checkpointer")
    for statement in refusal.hint.partition(": ")[2].rstrip(";").split(";"):
        connection.execute(statement)
    [(schema,)] = connection.execute(
        "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'checkpointer'"
    ).fetchall()
    Calls(connection, schema).value("ckpt_put", "t", "{}")
    assert connection.execute("SELECT thread_id FROM checkpoints").fetchall() == [("theirs",)]


def test_a_second_create_extension_is_refused_and_touches_nothing(make_database, template, connection_to):
    connection = connection_to(make_database(template))
    Calls(connection).value("ckpt_put", "t", '{"a": 1}')
    before = connection.execute(CATALOG).fetchall()
    with refused("42710"):
        connection.execute("CREATE EXTENSION checkpointer")
    connection.execute("CREATE EXTENSION IF NOT EXISTS checkpointer")
    assert connection.execute(CATALOG).fetchall() == before
    assert Calls(connection).value("ckpt_channel", "t", "a") == "1"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_is_refused(make_database, connection_to, encoding):
    database = make_database(options=f"ENCODING '{encoding}' LOCALE 'C'")
    connection = connection_to(database, client_encoding="UTF8")
    before = connection.execute(CATALOG).fetchall()
    with refused("0A000") as refusal:
        connection.execute("CREATE EXTENSION checkpointer")
    assert encoding in refusal.message
    assert "ENCODING 'UTF8'" in refusal.hint
    assert connection.execute(CATALOG).fetchall() == before


def test_drop_extension_leaves_nothing(make_database, connection_to):
    connection = connection_to(make_database())
    before = connection.execute("SELECT relname FROM pg_class UNION ALL SELECT proname FROM pg_proc ORDER BY 1").fetchall()
    connection.execute("CREATE EXTENSION checkpointer")
    Calls(connection).value("ckpt_put", "t", "{}")
    connection.execute("DROP EXTENSION checkpointer")
    after = connection.execute("SELECT relname FROM pg_class UNION ALL SELECT proname FROM pg_proc ORDER BY 1").fetchall()
    assert after == before


def test_create_extension_is_one_transaction(make_database, connection_to):
    connection = connection_to(make_database())
    before = connection.execute(CATALOG).fetchall()
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE EXTENSION checkpointer")
        Calls(connection).value("ckpt_put", "t", "{}")
    assert connection.execute(CATALOG).fetchall() == before


@pytest.mark.needs_session
def test_an_ordinary_user_cannot_install(make_database, connection_to):
    connection = connection_to(make_database())
    connection.execute("SET ROLE pg_monitor")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("CREATE EXTENSION checkpointer")
