# shellcheck shell=bash
# A private database cluster in one directory: sourced after lib.sh by cluster.sh and throwaway.sh.
#
# The directory belongs to the user that runs the server, mode 0700. It holds data/, log, and one file
# each for the password, the port and the name of the socket directory.

cluster_file() { as_server cat "$1/$2"; }

write_file() { # FILE, its content on standard input; readable by its owner alone
    as_server sh -c 'umask 077 && cat >"$1"' sh "$1"
}

# A free port below those that the kernel hands out for outgoing connections.
free_port() {
    python3 - <<'PYTHON'
import random, socket
for port in random.sample(range(15000, 32000), 200):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break
else:
    raise SystemExit("error: found no free port between 15000 and 32000")
PYTHON
}

port_is_free() {
    ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

make_cluster() { # DIR
    local dir=$1 parent
    parent=$(dirname "$dir")
    if [[ $EUID -eq 0 ]]; then
        install -d -o "$RUN_AS" -g "$RUN_AS" -m 700 "$dir"
    else
        mkdir -p "$parent" && mkdir -m 700 "$dir"
    fi
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n' | write_file "$dir/password"
    free_port | write_file "$dir/port"
    as_server "$TREE_BIN/initdb" --pgdata="$dir/data.new" --username=postgres --pwfile="$dir/password" \
        --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 2>&1 | write_file "$dir/initdb.log" || {
        as_server cat "$dir/initdb.log" >&2
        die "initdb failed, see above"
    }
    # The name says that initdb came to its end.
    as_server mv "$dir/data.new" "$dir/data"
}

cluster_made() { as_server test -d "$1/data"; }

cluster_runs() { # DIR
    local pid
    pid=$(as_server head -n 1 "$1/data/postmaster.pid" 2>/dev/null) || return 1
    # A server works in its data directory. The file may be left over, and its number another process's.
    [[ /proc/$pid/cwd -ef $1/data ]]
}

start_cluster() { # DIR
    local dir=$1 port socket
    port=$(cluster_file "$dir" port)
    if ! port_is_free "$port"; then
        say "port $port is now taken by another program: choosing a new one"
        port=$(free_port)
        printf '%s\n' "$port" | write_file "$dir/port"
    fi
    # A socket's path may have 107 bytes, and a clone may lie deep: its directory is in /tmp.
    socket=$(as_server mktemp -d /tmp/checkpointer.XXXXXX)
    printf '%s\n' "$socket" | write_file "$dir/socket"
    # The locks of the callers (8 and 9) must not live on in the server.
    as_server "$TREE_BIN/pg_ctl" start --wait --silent -D "$dir/data" -l "$dir/log" \
        -o "-p $port -k $socket -c listen_addresses=127.0.0.1" 8>&- 9>&- </dev/null >/dev/null || {
        as_server tail -n 20 "$dir/log" >&2
        die "the server did not start, see above (its whole log: $dir/log)"
    }
}

stop_cluster() { # DIR fast|immediate
    if cluster_runs "$1"; then
        as_server "$TREE_BIN/pg_ctl" stop --wait --silent --mode="$2" -D "$1/data" >/dev/null
    fi
    if as_server test -e "$1/socket"; then
        as_server rm -rf -- "$(cluster_file "$1" socket)"
        as_server rm "$1/socket"
    fi
}

cluster_uri() { # DIR DATABASE
    printf 'postgresql://postgres:%s@127.0.0.1:%s/%s\n' "$(cluster_file "$1" password)" "$(cluster_file "$1" port)" "$2"
}

cluster_psql() { # DIR DATABASE ARGUMENT...: the password stays out of the list of processes
    local dir=$1 database=$2
    shift 2
    PGPASSWORD=$(cluster_file "$dir" password) "$TREE_BIN/psql" -h 127.0.0.1 -p "$(cluster_file "$dir" port)" \
        -U postgres -d "$database" "$@"
}

cluster_query() { # DIR DATABASE STATEMENT...: all in one transaction
    local dir=$1 database=$2 statements=()
    shift 2
    for statement; do
        statements+=(-c "$statement")
    done
    cluster_psql "$dir" "$database" -XqAt -v ON_ERROR_STOP=1 --single-transaction "${statements[@]}"
}
