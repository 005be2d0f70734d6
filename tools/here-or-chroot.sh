#!/usr/bin/env bash
# here-or-chroot.sh demo|test|unit|regress|client|torture|lint: on this machine if its packages have
# PostgreSQL $PG, else in a chroot of the Debian suite that has it.
. "$(dirname "$0")/lib.sh"

if ! native; then
    exec "$ROOT/tools/in-chroot.sh" "$1"
fi
"$ROOT/tools/prereqs.sh"
case $1 in
    demo) exec "$ROOT/tools/demo.sh" ;;
    torture) exec "$ROOT/tools/torture.sh" ;;
    lint) exec "$ROOT/tools/lint.sh" ;;
    test) exec "$ROOT/tools/test.sh" ;;
    *) exec "$ROOT/tools/test.sh" "$1" ;;
esac
