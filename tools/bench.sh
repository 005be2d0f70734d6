#!/usr/bin/env bash
# bench.sh: measures the extension, what it is compared with, and the floor, on one throwaway server.
# SMALL=1 takes fewer samples; $ARGS names the measures, default all. The results are in target/bench.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

need_native
"$ROOT/tools/cargo.sh" build
"$ROOT/tools/install.sh"
CKPT_BENCH_OUTPUT=$ROOT/target/bench
export CKPT_BENCH_OUTPUT
mkdir -p "$CKPT_BENCH_OUTPUT"

requirements=$ROOT/benches/requirements.txt
venv=$HOST_BUILD/bench-venv
wanted=$(python3 --version; cat "$requirements")
if [[ $(cat "$venv/made-from" 2>/dev/null) != "$wanted" ]]; then
    say "making a Python virtualenv with what the extension is compared with"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2
    printf '%s\n' "$wanted" >"$venv/made-from"
fi
# The client keeps its buffers, as memory.rs makes a session of ours keep them: by default glibc maps a megabyte anew for each copy and
# gives it back, and on a virtual machine the page faults take longer than the serialising. All arms are this one client.
keep_buffers=(MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_TOP_PAD_=67108864)
exec "$ROOT/tools/throwaway.sh" env "${keep_buffers[@]}" "$venv/bin/python" -m benches
