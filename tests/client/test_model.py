"""Random programs of calls give, one after another, exactly the answers of a model that was written from the contract alone.

CKPT_MODEL_PROGRAMS says how many, CKPT_MODEL_SEED which; a program that differs is shown shortened, as SQL.
"""

import os
import uuid

import pytest

from programs import Comparison

pytestmark = pytest.mark.needs_session

SEED = os.environ.get("CKPT_MODEL_SEED", "1")
PROGRAMS = int(os.environ.get("CKPT_MODEL_PROGRAMS", "300"))


def test_the_extension_answers_as_the_model_does(module_calls):
    # Threads and runs are named anew each time, so that programs do not meet.
    module_calls.connection.prepared_max = 1000
    comparison = Comparison(module_calls, f"{uuid.uuid4().hex[:8]}-")
    for number in range(PROGRAMS):
        difference = comparison.run(SEED, number)
        assert difference is None, difference
