#!/usr/bin/env bash
# throwaway.sh COMMAND...: runs COMMAND beside a fresh cluster of its own, which is gone afterwards,
# also on failure, on Ctrl-C and when it is told to end.
#
# COMMAND finds in its environment:
#   CKPT_TEST_URI   superuser connection to the database "postgres"
#   CKPT_PG_BIN     directory of the server's programs
#   CKPT_RUN_AS     the user who must run them if we are root, else empty
#   CKPT_SCRATCH    an empty directory that this user can write to, for more clusters
. "$(dirname "$0")/lib.sh"
. "$ROOT/tools/cluster-lib.sh"

[[ $# -gt 0 ]] || die "usage: $0 COMMAND..."
make_state_dir

remove() { # DIR of a throwaway cluster
    local pid_file
    # COMMAND may have left servers of its own in the scratch directory.
    while read -r pid_file; do
        [[ /proc/$(head -n 1 "$pid_file")/cwd -ef $(dirname "$pid_file") ]] || continue
        as_server pg_ctl stop --wait --silent --mode=immediate -D "$(dirname "$pid_file")" >/dev/null || true
    done < <(find "$1" -path '*/scratch/*' -name postmaster.pid)
    [[ ! -d $1/cluster ]] || stop_cluster "$1/cluster" immediate || true
    rm -rf -- "$1"
}

# One at a time, so that nobody takes a directory that has no lock yet for a left-over one.
exec 7>"$STATE/throwaway.lock"
flock 7
# A run that was killed outright could not clean up: nobody holds its lock any more.
for lock in "$STATE"/throwaway.*/lock; do
    [[ -e $lock ]] || continue
    if flock --nonblock "$lock" true; then
        remove "$(dirname "$lock")"
    fi
done
dir=$(mktemp -d "$STATE/throwaway.XXXXXX")
chmod 755 "$dir"
exec 8>"$dir/lock"
flock 8
exec 7>&-

child=
# shellcheck disable=SC2317  # called by the trap
ended() {
    trap - EXIT
    if [[ -n $child ]]; then
        # Not TERM: Python would end at once, without its own cleaning up.
        kill -INT -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    remove "$dir"
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "starting a throwaway cluster of PostgreSQL $PG"
make_cluster "$dir/cluster"
start_cluster "$dir/cluster"
as_server mkdir "$dir/cluster/scratch"

CKPT_TEST_URI=$(cluster_uri "$dir/cluster" postgres)
export CKPT_TEST_URI CKPT_PG_BIN=$TREE_BIN CKPT_RUN_AS=$RUN_AS CKPT_SCRATCH=$dir/cluster/scratch

# In a process group of its own, so that all its processes can be told to end.
set -m
"$@" </dev/null 8>&- &
child=$!
set +m
status=0
wait "$child" || status=$?
child=
exit "$status"
