#!/usr/bin/env bash
# regress.sh: runs tests/pg_regress on the server of throwaway.sh; $ARGS names the tests, default all.
# setup.sql comes first: it creates the extension in the fresh database that all tests share.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

say "SQL regression tests"
read -ra tests <<<"${ARGS:-}"
if [[ ${#tests[@]} -eq 0 ]]; then
    for file in tests/pg_regress/sql/*.sql; do
        file=${file##*/}
        [[ $file == setup.sql ]] || tests+=("${file%.sql}")
    done
fi
output=$BUILD/regress
rm -rf "$output"
mkdir -p "$output"

[[ $CKPT_TEST_URI =~ ^postgresql://([^:]+):([^@]+)@([^:]+):([0-9]+)/ ]]
PGPASSWORD=${BASH_REMATCH[2]} "$SYSTEM_PG/lib/pgxs/src/test/regress/pg_regress" \
    --bindir="$CKPT_PG_BIN" --inputdir=tests/pg_regress --outputdir="$output" --encoding=UTF8 \
    --user="${BASH_REMATCH[1]}" --host="${BASH_REMATCH[3]}" --port="${BASH_REMATCH[4]}" \
    --dbname=checkpointer_regress setup "${tests[@]}" && exit
status=$?
cat "$output/regression.diffs" >&2 || true
say "what the tests printed is in $output/results; where that is right, copy it to tests/pg_regress/expected"
exit "$status"
