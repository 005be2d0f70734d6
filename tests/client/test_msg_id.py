"""msg_id gives the ids that tests/vectors publishes and that an implementation of its own, msg_id.py, computes."""

import json

import msg_id
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import Calls, connect

# Vectors that say the same in other words, by name. All others have ids of their own.
SAME = [
    {"text", "a JSON string has the id of its text", "a JSON string with escapes"}
    | {"message of role and text: the id of its text", "message: ephemeral and id null say nothing of the body"},
    {"a JSON string: solidus may be escaped", "text: solidus"},
    {"a JSON string with U+0000", "message with U+0000 in its text"},
    {"a JSON string: escaped surrogate pair", "a JSON string: the same character unescaped"},
    {"object", "object with white space"},
    {"keys sorted", "keys in another order"},
    {"control characters", "control characters spelt in upper case"},
    {"number 1", "number 1.0", "number 10e-1", "number 0.1E1"},
    {"number 0", "number -0.0", "number 0e5"},
    {"number 100", "number 1e2"},
    {"number 1.50", "number 15e-1"},
    {"number 1e16", "number 10000000000000000"},
]

every_vector = pytest.mark.parametrize("vector", msg_id.VECTORS, ids=lambda vector: vector["name"])


def test_the_published_vectors_cover_every_form_and_the_first_three_occurrences():
    assert len(msg_id.VECTORS) >= 25
    assert {form for form in ("text", "json", "message") for v in msg_id.VECTORS if form in v} == {"text", "json", "message"}
    assert {vector["occurrence"] for vector in msg_id.VECTORS} == {0, 1, 2}


def test_vectors_share_an_id_only_where_they_say_the_same():
    groups = {}
    for vector in msg_id.VECTORS:
        groups.setdefault(vector["msg_id"], set()).add(vector["name"])
    assert sorted(map(sorted, (group for group in groups.values() if len(group) > 1))) == sorted(map(sorted, SAME))


@every_vector
def test_the_python_implementation_gives_the_published_id(vector):
    assert msg_id.of_vector(vector) == vector["msg_id"]


@every_vector
def test_the_database_gives_the_published_id(vector, connection_to, database):
    calls = Calls(connection_to(database, autocommit=False))
    if "message" in vector:
        # Occurrence n is that of the message that stands n times before it in the same call.
        batch = "[" + ",".join([vector["message"]] * (vector["occurrence"] + 1)) + "]"
        rows = calls.rows("ckpt_append", vector["thread_id"], batch, vector["turn"])
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        assert rows[-1].msg_id == vector["msg_id"]
    else:
        kind = "json" if "json" in vector else "text"
        arguments = [vector[name] for name in ("thread_id", "role", kind, "turn")]
        assert calls.msg_id(*arguments, kind=kind) == vector["msg_id"]
    calls.connection.rollback()


def test_turn_defaults_to_none(connection):
    for kind in ("text", "json"):
        statement = f"SELECT msg_id('t1', 'user', '\"hello\"'::{kind})"
        expected = msg_id.of_text("t1", "user", "hello" if kind == "json" else '"hello"')
        assert connection.execute(statement).fetchone()[0] == expected


unicode_text = st.text(st.characters(codec="utf-8"), max_size=12)
postgres_text = unicode_text.filter(lambda text: "\0" not in text)
names = postgres_text.filter(lambda text: 0 < len(text.encode()) <= 255)
blank = st.sampled_from(["", "", " ", "\n\t "])
numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True).filter(str.isascii)
strings = st.builds(lambda text, ascii: json.dumps(text, ensure_ascii=ascii), unicode_text, st.booleans())
scalars = st.one_of(numbers, strings, st.sampled_from(["true", "false", "null"]))


def array(items, space):
    return f"[{space}" + f"{space},".join(items) + f"{space}]"


def members(pairs, space):
    return f"{{{space}" + f"{space},{space}".join(f"{key}{space}:{value}" for key, value in pairs) + "}"


def containers(values):
    pairs = st.lists(st.tuples(strings, values), max_size=5, unique_by=lambda pair: json.loads(pair[0]))
    return st.one_of(st.builds(array, st.lists(values, max_size=5), blank), st.builds(members, pairs, blank))


documents = st.recursive(scalars, containers, max_leaves=25)


@pytest.fixture(scope="module")
def database_ids(uri, database):
    """Gives the database's id of content."""
    with connect(uri(database)) as connection:
        yield Calls(connection).msg_id


@settings(derandomize=True, database=None, deadline=None, max_examples=600)
@given(thread_id=names, role=names, content=documents, turn=postgres_text)
def test_any_json_has_the_same_id_in_both(database_ids, thread_id, role, content, turn):
    assert database_ids(thread_id, role, content, turn, kind="json") == msg_id.of_json(thread_id, role, content, turn)


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(thread_id=names, role=names, content=postgres_text, turn=postgres_text)
def test_any_text_has_the_same_id_in_both(database_ids, thread_id, role, content, turn):
    assert database_ids(thread_id, role, content, turn) == msg_id.of_text(thread_id, role, content, turn)
