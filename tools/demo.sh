#!/usr/bin/env bash
# demo.sh: kills an agent in the middle of its work and lets another resume it, on a throwaway server.
# With $INPUT, it replays the conversations of that file.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

input=()
if [[ -n ${INPUT:-} ]]; then
    [[ -r $INPUT ]] || die "cannot read INPUT=$INPUT"
    input=(--input "$INPUT")
fi
"$ROOT/tools/cargo.sh" build
"$ROOT/tools/install.sh"
venv=$("$ROOT/tools/venv.sh")
say "running the demonstration"
exec "$ROOT/tools/throwaway.sh" sh -ec '
    "$CKPT_PG_BIN/psql" -Xq -d "$CKPT_TEST_URI" -c "CREATE EXTENSION checkpointer"
    exec "$@" --uri "$CKPT_TEST_URI"' sh "$venv/bin/python" examples/resume/run.py "${input[@]}"
