#!/usr/bin/env bash
# client.sh: runs the tests of tests/client on a throwaway server; $ARGS goes to pytest.
# They find what throwaway.sh sets, CKPT_SHARED: a directory with recorded conversations, or empty, and CKPT_VOCABULARIES: the
# vocabularies that the tokenizer was built from.
# With POOLER=1, they go through a pooler: once without prepared statements, and once with them if the pooler carries them.
# CKPT_PREPARES tells them which.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

venv=$("$ROOT/tools/venv.sh")
CKPT_SHARED=
[[ ! -d ../shared/data ]] || CKPT_SHARED=$(cd ../shared/data && pwd -P)
CKPT_VOCABULARIES=$(printf '%s\n' "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/bpe-openai-*/data | tail -n 1)
[[ -d $CKPT_VOCABULARIES ]] || die "no vocabularies in $CKPT_VOCABULARIES: build the extension first"
export CKPT_SHARED CKPT_VOCABULARIES

run() { # COMMAND... before pytest
    # shellcheck disable=SC2086  # ARGS holds several words
    "$ROOT/tools/throwaway.sh" "$@" "$venv/bin/python" -m pytest tests/client ${ARGS:-}
}
if [[ -z ${POOLER:-} ]]; then
    say "client tests"
    run
    exit
fi
failed=
say "client tests behind a pooler, without prepared statements"
CKPT_PREPARES=no run "$ROOT/tools/pooler.sh" || failed=yes
if "$ROOT/tools/pooler.sh" --prepares; then
    say "client tests behind a pooler, with prepared statements"
    CKPT_PREPARES=yes run "$ROOT/tools/pooler.sh" || failed=yes
fi
[[ -z $failed ]]
