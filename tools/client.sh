#!/usr/bin/env bash
# client.sh: runs the tests of tests/client on a throwaway server; $ARGS goes to pytest.
# They find what throwaway.sh sets, and CKPT_SHARED: a directory with recorded conversations, or empty.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

venv=$("$ROOT/tools/venv.sh")
CKPT_SHARED=
[[ ! -d ../shared/data ]] || CKPT_SHARED=$(cd ../shared/data && pwd -P)
export CKPT_SHARED
say "client tests"
# shellcheck disable=SC2086  # ARGS holds several words
exec "$ROOT/tools/throwaway.sh" "$venv/bin/python" -m pytest tests/client ${ARGS:-}
