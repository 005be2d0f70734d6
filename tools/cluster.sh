#!/usr/bin/env bash
# cluster.sh start|stop|psql|clean: the private cluster for development, with the extension in a
# database "checkpointer". It outlives the command, and its data stays until "clean".
. "$(dirname "$0")/lib.sh"
. "$ROOT/tools/cluster-lib.sh"
CLUSTER=$STATE/cluster

# What CREATE EXTENSION runs, without what differs between two builds of the same source: pgrx
# orders the statements freely and names source lines in comments.
schema_hash() {
    grep -hv '^ *--' "$TREE_EXTENSION"/checkpointer--*.sql | sort | sha256sum | cut -c1-32
}

ensure_database() {
    local hash known
    hash=$(schema_hash)
    if [[ -z $(cluster_query "$CLUSTER" postgres "SELECT 1 FROM pg_database WHERE datname = 'checkpointer'") ]]; then
        cluster_psql "$CLUSTER" postgres -Xq -c 'CREATE DATABASE checkpointer'
    fi
    if [[ -z $(cluster_query "$CLUSTER" checkpointer "SELECT 1 FROM pg_extension WHERE extname = 'checkpointer'") ]]; then
        cluster_query "$CLUSTER" checkpointer 'CREATE EXTENSION checkpointer' \
            "COMMENT ON DATABASE checkpointer IS 'made from install script $hash'"
    fi
    known=$(cluster_query "$CLUSTER" checkpointer \
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = 'checkpointer'")
    if [[ $known != "made from install script $hash" ]]; then
        say "note: the extension's SQL has changed since this database was made. The database still has the old"
        say "tables and functions, and all your data. To begin again WITHOUT that data: make clean-data start PG=$PG"
    fi
}

case ${1-} in
    start)
        # Two at once: the second waits, and finds the server running.
        exec 9>"$STATE/cluster.lock"
        flock 9
        if ! cluster_made "$CLUSTER"; then
            say "making a private cluster in $CLUSTER"
            as_server rm -rf -- "$CLUSTER/data.new"
            [[ ! -e $CLUSTER ]] || rm -rf -- "$CLUSTER"
            make_cluster "$CLUSTER"
        fi
        if ! cluster_runs "$CLUSTER"; then
            stop_cluster "$CLUSTER" fast
            start_cluster "$CLUSTER"
        fi
        ensure_database
        say "PostgreSQL $PG runs with the extension; 'make psql PG=$PG' opens it, 'make stop PG=$PG' ends it:"
        cluster_uri "$CLUSTER" checkpointer
        ;;
    stop)
        if [[ -d $CLUSTER ]] && cluster_made "$CLUSTER"; then
            stop_cluster "$CLUSTER" fast
        fi
        say "the private server does not run; its data stays until 'make clean-data PG=$PG'"
        ;;
    psql)
        shift
        { [[ -d $CLUSTER ]] && cluster_runs "$CLUSTER"; } || die "the private server does not run: run 'make start PG=$PG' first"
        cluster_psql "$CLUSTER" checkpointer "$@"
        ;;
    clean)
        [[ -d $CLUSTER ]] || exit 0
        if cluster_made "$CLUSTER"; then
            stop_cluster "$CLUSTER" fast
        fi
        rm -rf -- "$CLUSTER"
        say "the private cluster of PostgreSQL $PG and its data are gone"
        ;;
    *) die "usage: $0 start|stop|psql|clean" ;;
esac
