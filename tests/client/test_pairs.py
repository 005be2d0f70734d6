"""Two writing functions in two sessions, each pair of them at each isolation level: what is left is what one after the other
leaves, or one of them lost the race (40001) and left nothing. Nobody waits in a circle, and no value is damaged."""

import pytest

from pairs import FUNCTIONS, INTERLEAVINGS, ISOLATIONS, READ_COMMITTED, SERIALIZABLE, Pairs
from support import connect


@pytest.fixture(scope="module")
def pairs(uri, database):
    pairs = Pairs(lambda: connect(uri(database)))
    yield pairs
    pairs.close()


def interleavings(isolation):
    """Those that are others at this level than at those before it: under READ COMMITTED no snapshot is older than a call, and a
    session that is rolled back conflicts with none."""
    left_out = {READ_COMMITTED: "B's snapshot first", SERIALIZABLE: "A rolls back"}.get(isolation)
    return [interleaving for interleaving in INTERLEAVINGS if interleaving != left_out]


@pytest.mark.parametrize("a", FUNCTIONS, ids=lambda function: function.name)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_pair_at_once_leaves_what_one_after_the_other_leaves(pairs, isolation, a):
    pairs.start()
    problems = pairs.problems(a, FUNCTIONS, isolation, interleavings(isolation))
    assert not problems, "\n\n".join(problems)


def test_a_function_that_begins_while_another_is_midway(pairs):
    problems = []
    for a in FUNCTIONS:
        pairs.start()
        # Here most functions have their locks, and have not written what they lock it for.
        problems += pairs.problems_midway(a, FUNCTIONS, "checkpoints")
    assert not problems, "\n\n".join(problems)
