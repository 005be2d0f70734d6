#!/usr/bin/env bash
# lint.sh: the formatting, clippy, and shellcheck on these scripts.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

command -v shellcheck >/dev/null || "$ROOT/tools/prereqs.sh" shellcheck
say "shellcheck"
shellcheck -x tools/*.sh .ci/run
exec "$ROOT/tools/cargo.sh" lint
