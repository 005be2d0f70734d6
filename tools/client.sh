#!/usr/bin/env bash
# client.sh: runs the tests of tests/client on a throwaway server; $ARGS goes to pytest.
# They find what throwaway.sh sets, CKPT_SHARED: a directory with recorded conversations, or empty, and CKPT_VOCABULARIES: the
# vocabularies that the tokenizer was built from.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

venv=$("$ROOT/tools/venv.sh")
CKPT_SHARED=
[[ ! -d ../shared/data ]] || CKPT_SHARED=$(cd ../shared/data && pwd -P)
CKPT_VOCABULARIES=$(printf '%s\n' "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/bpe-openai-*/data | tail -n 1)
[[ -d $CKPT_VOCABULARIES ]] || die "no vocabularies in $CKPT_VOCABULARIES: build the extension first"
export CKPT_SHARED CKPT_VOCABULARIES
say "client tests"
# shellcheck disable=SC2086  # ARGS holds several words
exec "$ROOT/tools/throwaway.sh" "$venv/bin/python" -m pytest tests/client ${ARGS:-}
