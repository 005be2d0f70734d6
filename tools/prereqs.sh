#!/usr/bin/env bash
# prereqs.sh [PACKAGE...]: finds what building and testing need and this machine lacks, and installs it
# (as root or by sudo), or says what to install. With PACKAGE, it sees to those packages alone.
. "$(dirname "$0")/lib.sh"

missing=()
need() { missing+=("$@"); }

if [[ $# -gt 0 ]]; then
    for package; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || need "$package"
    done
else
    need_native
    # The test is for the thing, not the package: a compiler or Python from elsewhere will do.
    command -v cc >/dev/null || need gcc
    [[ -e /usr/include/stdio.h ]] || need libc6-dev
    command -v pkg-config >/dev/null || need pkg-config
    # cargo-pgrx links with OpenSSL.
    [[ -e /usr/include/openssl/ssl.h ]] || need libssl-dev
    # bindgen reads the server's headers with libclang.
    [[ -n ${LIBCLANG_PATH:-} ]] || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || need libclang-dev
    [[ -e ${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} ]] || need ca-certificates
    python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || need python3-venv
    [[ -x $SYSTEM_PG/bin/postgres ]] || need "postgresql-$PG"
    [[ -e /usr/include/postgresql/$PG/server/postgres.h ]] || need "postgresql-server-dev-$PG"
fi
[[ ${#missing[@]} -gt 0 ]] || exit 0

command -v apt-get >/dev/null ||
    die "this is not a Debian machine. Install what these Debian packages hold, then try again: ${missing[*]}"

# The postgresql package would make and start a cluster "main". Nobody asked for one: the setting is
# there while we install, and gone afterwards, so that later installs behave as ever.
install_script='
set -eu
exec </dev/null
export DEBIAN_FRONTEND=noninteractive
setting=/etc/postgresql-common/createcluster.d/checkpointer-no-main-cluster.conf
trap "rm -f $setting" EXIT
mkdir -p "$(dirname $setting)"
echo "create_main_cluster = false" >$setting
# One unreachable source among others is no reason to give up: the install will tell.
apt-get -qq update || echo "==> some package sources did not answer; going on with the others" >&2
apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"
'
command_line="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
can_be_root || die "these packages are missing, and installing them needs root. Run this as root, then try again:
    $command_line"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "installing Debian packages: ${missing[*]}"
as_root sh -c "$install_script" sh "${missing[@]}" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "the packages could not be installed, see above. Mend the cause, or install them yourself, as root:
    $command_line"
}
