#!/usr/bin/env bash
# test.sh [unit|regress|client|pooler]...: runs these kinds of tests, or all; tests/README.md tells them apart.
# All are run even if one fails; the exit code tells whether all passed.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

kinds=("$@")
[[ $# -gt 0 ]] || kinds=(unit regress client pooler)
failed=()

run_kind() {
    case $1 in
        unit) "$ROOT/tools/cargo.sh" unit ;;
        regress) "$ROOT/tools/throwaway.sh" "$ROOT/tools/regress.sh" ;;
        client) "$ROOT/tools/client.sh" ;;
        # The client tests that a pooler can make a difference to, but for the two long ones that only read.
        pooler)
            POOLER=1 ARGS="--pooled --deselect=tests/client/test_window.py::test_every_window_over_the_recorded_conversations \
                --deselect=tests/client/test_tokens.py::test_every_message_of_the_recorded_conversations ${ARGS:-}" \
                "$ROOT/tools/client.sh"
            ;;
        *) die "unknown kind of tests: $1" ;;
    esac
}

if [[ " ${kinds[*]} " == *" regress "* || " ${kinds[*]} " == *" client "* ||
    " ${kinds[*]} " == *" pooler "* ]]; then
    "$ROOT/tools/cargo.sh" build
    "$ROOT/tools/install.sh"
fi
for kind in "${kinds[@]}"; do
    run_kind "$kind" || failed+=("$kind")
done
[[ ${#failed[@]} -eq 0 ]] || die "these tests failed on PostgreSQL $PG: ${failed[*]}"
