#!/usr/bin/env bash
# pooler.sh COMMAND...: runs COMMAND, as throwaway.sh does, beside its server and a pgbouncer before it that pools transactions.
#
# COMMAND finds in its environment, besides what throwaway.sh sets:
#   CKPT_POOLER     superuser connection through the pooler to the database "postgres"
# pooler.sh --prepares: whether a client may prepare statements that outlive a transaction, by the exit code.
. "$(dirname "$0")/lib.sh"

[[ $# -gt 0 ]] || die "usage: $0 COMMAND..."
if ! command -v pgbouncer >/dev/null; then
    "$ROOT/tools/prereqs.sh" pgbouncer
    # The package starts a pooler for the machine. Nobody asked for one.
    [[ ! -d /run/systemd/system ]] || as_root systemctl --quiet disable --now pgbouncer
fi
pgbouncer=$(command -v pgbouncer)
# Debian 12 has 1.18, Debian 13 has 1.24. Clients can build upon it since 1.22, which also lets them forget statements.
prepares=no
version=$("$pgbouncer" --version)
[[ ! $version =~ ^PgBouncer\ 1\.([0-9]+) || ${BASH_REMATCH[1]} -lt 22 ]] || prepares=yes
if [[ $1 == --prepares ]]; then
    [[ $prepares == yes ]]
    exit
fi

dir=$CKPT_SCRATCH/pooler
# It lets everyone in who reaches it, so it listens on a socket alone, in a directory that only its user may enter.
socket=$(as_server mktemp -d /tmp/checkpointer.XXXXXX)
pid=
# shellcheck disable=SC2317  # called by the trap
ended() {
    # It would wait for its clients at any other signal.
    [[ -z $pid ]] || kill -KILL "$(as_server cat "$dir/pid")" 2>/dev/null || true
    as_server rm -rf -- "$socket"
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

[[ $CKPT_TEST_URI =~ ^postgresql://([^:]+):([^@]+)@([^:]+):([0-9]+)/ ]]
as_server mkdir -m 700 "$dir"
as_server sh -c 'umask 077 && cat >"$1"' sh "$dir/users" <<<"\"${BASH_REMATCH[1]}\" \"${BASH_REMATCH[2]}\""
{
    cat <<SETTINGS
[databases]
* = host=${BASH_REMATCH[3]} port=${BASH_REMATCH[4]}

[pgbouncer]
unix_socket_dir = $socket
listen_port = 6432
auth_type = trust
auth_file = $dir/users
pool_mode = transaction
; The next transaction of a client goes to another server process wherever there is one.
server_round_robin = 1
default_pool_size = 20
; Unused ones to other databases make room.
max_user_connections = 60
max_client_conn = 300
query_wait_timeout = 60
log_connections = 0
log_disconnections = 0
SETTINGS
    [[ $prepares == no ]] || echo "max_prepared_statements = 200"
} | as_server sh -c 'umask 077 && cat >"$1"' sh "$dir/pgbouncer.ini"

# shellcheck disable=SC2016  # the number of that shell, which becomes the pooler
as_server sh -c 'echo $$ >"$2/pid" && exec "$1" "$2/pgbouncer.ini" >"$2/log" 2>&1' sh "$pgbouncer" "$dir" \
    </dev/null 2>/dev/null & # where the shell would report how it ended
pid=$!
tries=0
until as_server pg_isready --quiet --host="$socket" --port=6432 --username=postgres --dbname=postgres; do
    if ! kill -0 "$pid" 2>/dev/null || ((++tries > 600)); then
        as_server tail -n 20 "$dir/log" >&2
        die "the pooler did not start, see above"
    fi
    sleep 0.1
done
say "${version%%$'\n'*} stands before the server and pools transactions"

export CKPT_POOLER="postgresql://postgres@/postgres?host=$socket&port=6432"
status=0
"$@" || status=$?
exit "$status"
