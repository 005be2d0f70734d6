"""ckpt_grant gives a role exactly what 'read' and 'write' say, and ckpt_revoke takes it back."""

import itertools

import pytest

from support import ALL_TABLES, Calls, at_once, quoted, refused

numbers = itertools.count(1)

pytestmark = pytest.mark.needs_session

PURE = [
    "SELECT msg_id('t', 'user', 'x'::text)",
    "SELECT msg_id('t', 'user', '[]'::json)",
    "SELECT ckpt_tokens('a')",
    "SELECT ckpt_check_markup('tag', 'a', 'text', NULL)",
]
READING = PURE + [
    "SELECT checkpoint_id FROM ckpt_latest('t')",
    "SELECT ckpt_channel('t', 'large')",
    "SELECT ckpt_state('t')",
    "SELECT todo FROM ckpt_resume('t')",
    "SELECT checkpoint_id FROM ckpt_history('t')",
    "SELECT checkpoint_id FROM ckpt_list()",
    "SELECT checkpoint_id FROM ckpt_list('t', filter => '{\"a\": 1}')",
    "SELECT seq FROM ckpt_messages('t')",
    "SELECT ordinal FROM ckpt_window('t')",
    "SELECT ckpt_load('\"t\"')",
    "SELECT ckpt_strip('a')",
]
WRITING = [
    "SELECT ckpt_put('t', '{\"a\": 1}')",
    "SELECT ckpt_put('t', '{\"a\": 2, \"b\": 1}', checkpoint_id => 'base', next => '{x}')",
    "SELECT ckpt_put_writes('t', 'base', 'x', '[[\"a\", 1]]')",
    "SELECT ckpt_put_writes('t', 'base', 'x', '[[\"a\", 2]]', on_conflict => 'replace')",
    "SELECT ckpt_apply_writes('t', checkpoint_id => 'base')",
    "SELECT ckpt_fork('t', 'base')",
    "SELECT seq FROM ckpt_append('t', '[{\"id\": \"m\", \"role\": \"user\", \"content\": \"new\"}]')",
    "SELECT seq FROM ckpt_append('t', '[{\"id\": \"m\", \"role\": \"user\", \"content\": \"edit\"}]', on_conflict => 'replace')",
    "SELECT message_count FROM ckpt_summary_due('t', 0)",
    "SELECT ckpt_put_summary('t', 1, 'short')",
    "SELECT ckpt_rewind('t', 1)",
    "SELECT ckpt_delete_thread('t')",
]
GRANTING = ["SELECT ckpt_grant('pg_monitor', 'read')", "SELECT ckpt_revoke('pg_monitor')"]


@pytest.fixture
def filled(make_database, template, connection_to):
    """A superuser's calls in a database of the test's own, with a thread `t` that has a bit of everything."""
    calls = Calls(connection_to(make_database(template)))
    calls.value("ckpt_put", "t", '{"large": "' + "x" * 5000 + '"}', '{"a": 1}', next=["x"], checkpoint_id="base")
    calls.rows("ckpt_append", "t", '[{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]')
    return calls


@pytest.fixture
def make_role(admin):
    """Makes roles without any right; they are gone with the server."""

    def make(name=None):
        name = name or f"client_role_{next(numbers)}"
        admin.execute(f"CREATE ROLE {quoted(name)}")
        return name

    return make


@pytest.fixture
def role(make_role):
    return make_role()


def as_role(calls, role, statement):
    """Runs a statement as the role, committed."""
    calls.connection.execute(f"SET ROLE {quoted(role)}")
    try:
        return calls.connection.execute(statement).fetchall()
    finally:
        calls.connection.execute("RESET ROLE")


def may(calls, role, statements):
    for statement in statements:
        assert as_role(calls, role, statement), statement


def may_not(calls, role, statements):
    for statement in statements:
        with refused("42501"):
            as_role(calls, role, statement)


def privileges(calls, role):
    """All that a role may do with the extension's tables and functions."""
    tables = calls.sql(
        "SELECT t, p FROM unnest(%s::text[]) t, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p "
        "WHERE has_table_privilege(%s, '@s.' || t, p)",
        list(ALL_TABLES),
        role,
    )
    functions = calls.sql(
        "SELECT p.proname FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' "
        "JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'checkpointer' WHERE has_function_privilege(%s, p.oid, 'EXECUTE')",
        role,
    )
    return {tuple(row) for row in tables}, {row[0] for row in functions}


def grants(calls):
    return {tuple(row) for row in calls.sql("SELECT role_name, level FROM @s.checkpoint_grants")}


def test_a_role_with_nothing_may_do_nothing(filled, role):
    may_not(filled, role, READING + WRITING + GRANTING)
    for table in ALL_TABLES:
        may_not(filled, role, [f"SELECT 1 FROM {table}", f"DELETE FROM {table}"])


def test_read_is_every_reading_function_and_no_other(filled, role):
    filled.value("ckpt_grant", role, "read")
    may(filled, role, READING)
    may_not(filled, role, WRITING + GRANTING)
    for table in ALL_TABLES:
        may_not(filled, role, [f"DELETE FROM {table}", f"UPDATE {table} SET {first_column(table)} = ''"])


def first_column(table):
    others = {"checkpoint_grants": "role_name", "checkpoint_markup": "name", "checkpoint_graphs": "tenant"}
    return others.get(table, "thread_id")


def test_write_is_every_function_but_granting(filled, role):
    filled.value("ckpt_grant", role, "write")
    may(filled, role, READING)
    may_not(filled, role, GRANTING)
    may(filled, role, WRITING)
    assert filled.count("checkpoints", "t") == 0
    may_not(filled, role, ["SELECT 1 FROM checkpoint_grants", *(f"TRUNCATE {table}" for table in ALL_TABLES)])
    # The rules are for everybody: only the owner changes them.
    may_not(filled, role, ["UPDATE checkpoint_markup SET enabled = false", "DELETE FROM checkpoint_markup"])


def test_revoke_takes_back_all(filled, role):
    nothing = privileges(filled, role)
    assert nothing == (set(), set())
    for level in ("read", "write"):
        filled.value("ckpt_grant", role, level)
        assert privileges(filled, role) != nothing
        filled.value("ckpt_revoke", role)
        assert privileges(filled, role) == nothing
        assert grants(filled) == set()
        may_not(filled, role, READING + WRITING)


def test_a_later_level_replaces_the_earlier(filled, make_role):
    reader, writer, other = make_role(), make_role(), make_role()
    filled.value("ckpt_grant", reader, "read")
    filled.value("ckpt_grant", writer, "write")
    for levels in (["write", "read"], ["read", "read"], ["write"]):
        for level in levels:
            filled.value("ckpt_grant", other, level)
        assert privileges(filled, other) == privileges(filled, reader if level == "read" else writer)
        assert grants(filled) == {(reader, "read"), (writer, "write"), (other, level)}


def test_grants_are_recorded_one_per_role(filled, make_role):
    roles = [make_role() for _ in range(3)]
    filled.value("ckpt_grant", roles[0], "read")
    filled.value("ckpt_grant", roles[1], "write")
    filled.value("ckpt_grant", roles[1], "write")
    filled.value("ckpt_grant", roles[2], "write")
    filled.value("ckpt_revoke", roles[2])
    filled.value("ckpt_revoke", roles[2])
    assert grants(filled) == {(roles[0], "read"), (roles[1], "write")}


@pytest.mark.parametrize("name", ["Upper", 'quo"te', "apos'trophe", "semi;colon -- x", "100% %I", "select", "ünï", " ", "a\\b"])
def test_a_role_whose_name_needs_quoting(filled, make_role, name):
    role = make_role(f"{name} {next(numbers)}" if name != "select" else name)
    filled.value("ckpt_grant", role, "write")
    assert grants(filled) == {(role, "write")}
    may(filled, role, ["SELECT ckpt_put('q', '{}')", "SELECT ckpt_state('q')"])
    filled.value("ckpt_revoke", role)
    may_not(filled, role, ["SELECT ckpt_state('q')"])


@pytest.mark.parametrize("name", ["public", "PUBLIC", "nobody_at_all", "", "Pg_Monitor", '"pg_monitor"', "none", "current_user"])
def test_a_role_that_does_not_exist_is_refused(filled, name):
    for function, arguments in (("ckpt_grant", (name, "read")), ("ckpt_revoke", (name,))):
        with refused("42704") as refusal:
            filled.value(function, *arguments)
        assert f'"{name}"' in refusal.message
        assert refusal.detail and refusal.hint
    assert grants(filled) == set()


def test_null_is_refused(filled, role):
    for function, arguments, argument in (
        ("ckpt_grant", (None, "read"), "role"),
        ("ckpt_grant", (role, None), "level"),
        ("ckpt_revoke", (None,), "role"),
    ):
        with refused("22004") as refusal:
            filled.value(function, *arguments)
        assert argument in refusal.message
    assert privileges(filled, role) == (set(), set())


@pytest.mark.parametrize("level", ["", "Read", "WRITE", "all", "read ", "execute"])
def test_a_level_that_does_not_exist_is_refused(filled, role, level):
    filled.value("ckpt_grant", role, "read")
    with refused("22023") as refusal:
        filled.value("ckpt_grant", role, level)
    assert f'"{level}"' in refusal.message
    assert "'read'" in refusal.hint
    assert "'write'" in refusal.hint
    assert grants(filled) == {(role, "read")}


def test_a_grant_is_undone_with_its_transaction(filled, role):
    with filled.connection.transaction(force_rollback=True):
        filled.value("ckpt_grant", role, "write")
    assert grants(filled) == set()
    assert privileges(filled, role) == (set(), set())


def test_a_granted_role_works_in_a_schema_of_its_own(make_database, connection_to, role):
    calls = Calls(connection_to(make_database()), "agent_memory")
    calls.connection.execute("CREATE SCHEMA agent_memory")
    calls.connection.execute("CREATE EXTENSION checkpointer SCHEMA agent_memory")
    calls.value("ckpt_grant", role, "write")
    calls.connection.execute(f"SET ROLE {role}")
    calls.value("ckpt_put", "t", '{"a": 1}')
    assert calls.value("ckpt_channel", "t", "a") == "1"


def test_other_grants_on_the_schema_stay(filled, role):
    filled.connection.execute(f"CREATE TABLE theirs (x int); GRANT SELECT ON theirs TO {role}")
    filled.value("ckpt_grant", role, "write")
    filled.value("ckpt_revoke", role)
    assert as_role(filled, role, "SELECT count(*) FROM theirs") == [(0,)]


def test_a_member_of_a_granted_role_may_what_the_role_may(filled, make_role):
    group, member = make_role(), make_role()
    filled.connection.execute(f"GRANT {group} TO {member}")
    filled.value("ckpt_grant", group, "read")
    may(filled, member, READING)
    may_not(filled, member, WRITING)


@pytest.mark.parametrize("same_role", [True, False])
def test_deploys_that_grant_at_once_do_not_disturb_each_other(filled, make_role, connection_to, same_role):
    deploys = [Calls(connection_to(filled.connection.info.dbname)) for _ in range(4)]
    roles = [make_role()] * 4 if same_role else [make_role() for _ in range(4)]
    for _ in range(5):
        done = at_once([lambda d=d, r=r: d.rows("ckpt_grant", r, "write") for d, r in zip(deploys, roles, strict=True)])
        assert not [error for error in done if isinstance(error, Exception)]
    assert grants(filled) == {(role, "write") for role in roles}
    for role in roles:
        may(filled, role, READING)


def test_a_role_that_was_revoked_can_be_dropped(calls):
    calls.connection.execute("CREATE ROLE passing")
    calls.value("ckpt_grant", "passing", "write")
    calls.value("ckpt_grant", "passing", "read")
    calls.value("ckpt_revoke", "passing")
    calls.connection.execute("DROP ROLE passing")
