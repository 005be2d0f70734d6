#!/usr/bin/env bash
# torture.sh: kills clients and servers at work, and proves that nothing acknowledged is lost and nothing is there twice.
# KILLS says how often (default 200), SEED repeats the choices of an earlier run.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

"$ROOT/tools/cargo.sh" build
"$ROOT/tools/install.sh"
venv=$("$ROOT/tools/venv.sh")
export PYTHONPATH=$ROOT/tests:$ROOT/tests/client
exec "$ROOT/tools/throwaway.sh" "$venv/bin/python" -m torture --kills "${KILLS:-200}" ${SEED:+--seed "$SEED"}
