"""Looks into the database from outside: which tables the extension has, what stands in them, what depends on what."""

import shlex

from psycopg import sql

MEMBERS = """
SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'checkpointer'
"""


def find_extension(conn, schema):
    """The versions of extension and server, and what is wrong with where the extension is, or None."""
    row = conn.execute(
        "SELECT e.extversion, n.nspname, current_setting('server_version'), n.nspname = ANY (current_schemas(false))"
        " FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'checkpointer'"
    ).fetchone()
    if row is None:
        return "", "this database has no extension checkpointer; in psql: CREATE EXTENSION checkpointer;"
    version, installed, server, is_on_path = row
    wrong = installed != schema if schema else not is_on_path
    advice = f"the extension is in the schema {installed}; say --schema {shlex.quote(installed)}"
    return f"checkpointer {version} on PostgreSQL {server.split()[0]}", advice if wrong else None


def tables_of_extension(conn):
    """(schema, name) of each that we may read."""
    return conn.execute(
        f"WITH member AS ({MEMBERS}) SELECT n.nspname, c.relname FROM member m"
        " JOIN pg_class c ON m.classid = 'pg_class'::regclass AND m.objid = c.oid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r'"
        " AND has_table_privilege(c.oid, 'SELECT') ORDER BY 2"
    ).fetchall()


def tables_with(conn, tables, text):
    """The names of those tables that have the text in any column of any row, as text or as bytes."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} AS t WHERE strpos(t::text, %s) > 0 OR strpos(t::text, %s) > 0)")
    return [
        table[1] for table in tables
        if conn.execute(query.format(sql.Identifier(*table)), [text, text.encode().hex()]).fetchone()[0]
    ]


def dependencies(conn, schema):
    """What Postgres knows of objects in a schema that refer to the extension, and the other way round."""
    return conn.execute(
        f"""
        WITH member AS ({MEMBERS}),
        local AS (
            SELECT 'pg_class'::regclass AS classid, oid AS objid FROM pg_class WHERE relnamespace = %(schema)s::regnamespace
            UNION ALL
            SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace
            UNION ALL
            SELECT 'pg_proc'::regclass, oid FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
        )
        SELECT pg_describe_object(d.classid, d.objid, 0), pg_describe_object(d.refclassid, d.refobjid, 0)
        FROM pg_depend d
        WHERE (d.classid, d.objid) IN (TABLE local) AND (d.refclassid, d.refobjid) IN (TABLE member)
           OR (d.classid, d.objid) IN (TABLE member) AND (d.refclassid, d.refobjid) IN (TABLE local)
        """,
        {"schema": schema},
    ).fetchall()
