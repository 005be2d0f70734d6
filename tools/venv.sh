#!/usr/bin/env bash
# venv.sh: makes the Python virtualenv of the demonstration and the client tests; prints its directory.
. "$(dirname "$0")/lib.sh"

requirements=$ROOT/tests/client/requirements.txt
venv=$HOST_BUILD/venv
wanted=$(python3 --version; cat "$requirements")
if [[ $(cat "$venv/made-from" 2>/dev/null) != "$wanted" ]]; then
    say "making a Python virtualenv with the client packages"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2
    printf '%s\n' "$wanted" >"$venv/made-from"
fi
printf '%s\n' "$venv"
