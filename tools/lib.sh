# shellcheck shell=bash disable=SC2034  # what is set here is used by those who source it
# Common ground of the scripts in this directory: sourced by them, never run.
#
# Where things live, for PostgreSQL major version $PG:
#   target/pgN/            what cargo makes, the packaged extension, pgrx's home
#   target/<suite>/        cargo-pgrx and the Python virtualenv, which depend on the Debian suite
#   $STATE                 the private PostgreSQL installation and its clusters
# PostgreSQL refuses to run as root. For root, $STATE is therefore under /var/lib, where the
# unprivileged user that runs the server can reach it even if the clone is in /root.

set -euo pipefail
# A backtrace in an error's DETAIL would make the answers of the server depend on the caller's shell.
unset RUST_BACKTRACE RUST_LIB_BACKTRACE
# A PGHOST, PGSERVICE or PGOPTIONS of the caller must not lead a script to another server.
for name in $(compgen -e PG); do
    [[ $name == PG ]] || unset "$name"
done

# chroot and debootstrap are in directories that an ordinary user's PATH does not have.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
SUITE=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-unknown}")

# The one PostgreSQL that each Debian suite ships.
shipped_by() {
    case $1 in
        bookworm) echo 15 ;;
        trixie) echo 17 ;;
        forky | sid) echo 18 ;;
    esac
}
suite_with() {
    case $1 in
        15) echo bookworm ;;
        17) echo trixie ;;
        18) echo forky ;;
        *) die "PG=$1 is not supported: choose PG=15, PG=17 or PG=18" ;;
    esac
}

PG=${PG:-$(shipped_by "$SUITE")}
PG=${PG:-15}
suite_with "$PG" >/dev/null

SYSTEM_PG=/usr/lib/postgresql/$PG
# Two clones on one machine never share a server or a chroot.
CLONE_ID=$(printf '%s' "$ROOT" | sha256sum | cut -c1-12)
ROOT_STATE=/var/lib/checkpointer-dev/$CLONE_ID
CHROOT=$ROOT_STATE/chroot-pg$PG
BUILD=$ROOT/target/pg$PG
HOST_BUILD=$ROOT/target/$SUITE
if [[ $EUID -eq 0 ]]; then
    STATE=$ROOT_STATE/pg$PG
    RUN_AS=postgres
else
    STATE=$BUILD/private
    RUN_AS=
fi
TREE=$STATE/tree
TREE_BIN=$TREE/lib/postgresql/$PG/bin
TREE_EXTENSION=$TREE/share/postgresql/$PG/extension

# Whether this machine's own packages have the server, so that no chroot is needed.
native() {
    [[ -x $SYSTEM_PG/bin/postgres || $(shipped_by "$SUITE") == "$PG" ]] && return
    [[ $(apt-cache policy "postgresql-$PG" 2>/dev/null) == *"Candidate: $PG"* ]]
}

need_native() {
    native || die "this machine's packages have no PostgreSQL $PG." \
        "'make demo PG=$PG' and 'make test PG=$PG' run in a chroot of Debian $(suite_with "$PG")," \
        "which this command cannot use. Choose another PG, or run it on Debian $(suite_with "$PG")."
}

# own_dir DIR: makes DIR, or takes an existing one if nobody else can write to it.
own_dir() {
    mkdir -m 755 "$1" 2>/dev/null && return
    [[ -d $1 && ! -L $1 && -O $1 ]] || die "$1 is in the way: it is not a directory of $(id -un)'s. Remove it."
    [[ $EUID -ne 0 || -z $(find "$1" -maxdepth 0 -perm /022) ]] ||
        die "$1 can be written by others, so it is not safe for root to use. Remove it."
}

make_state_dir() {
    if [[ $EUID -eq 0 ]]; then
        own_dir "$(dirname "$ROOT_STATE")"
        own_dir "$ROOT_STATE"
    else
        mkdir -p "$BUILD"
    fi
    own_dir "$STATE"
}

# as_server COMMAND...: as the user that owns the clusters, with nothing of the caller's environment.
as_server() (
    cd /
    exec env -i PATH="$TREE_BIN:/usr/local/bin:/usr/bin:/bin" HOME=/ LANG=C.UTF-8 \
        ${RUN_AS:+setpriv --reuid="$RUN_AS" --regid="$RUN_AS" --init-groups --} "$@"
)

# The names of the set variables that a command run by sudo or in a chroot needs: those that lead to
# package registries, and those that the Makefile exports.
passed_variables() {
    compgen -e | grep -E '^(PIP_|CARGO_)|_(proxy|PROXY)$|^(SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE)$|^(CI|PG|INPUT|ARGS|KILLS|SEED|POOLER)$' |
        grep -vE '^CARGO_(HOME|TARGET_DIR|MANIFEST_|PKG_)' || true
}

# Whether as_root will work: as it is, or with a password if there is somebody to ask.
can_be_root() {
    [[ $EUID -eq 0 ]] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; }
}

as_root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    else
        sudo --preserve-env="LANG$(passed_variables | sed 's/^/,/' | tr -d '\n')" "$@"
    fi
}
