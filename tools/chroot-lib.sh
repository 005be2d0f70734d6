# shellcheck shell=bash
# Roots of a bare Debian suite: sourced after lib.sh. What needs root goes through as_root.

# The mirror that this machine's own packages come from.
debian_mirror() {
    local mirror
    mirror=$(grep -hE '^(deb |URIs:)' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ') || true
    printf '%s\n' "${mirror:-http://deb.debian.org/debian}"
}

make_root() { # SUITE DIR: does nothing if DIR is there already
    local suite=$1 dir=$2 script=() log
    [[ ! -d $dir ]] || return 0
    can_be_root || die "making a chroot of Debian $suite needs root. Run this as root, or as a user who may use sudo."
    "$ROOT/tools/prereqs.sh" debootstrap
    # An older debootstrap does not know the newest suite by name; all recent ones are made like sid.
    [[ -e /usr/share/debootstrap/scripts/$suite ]] || script=(/usr/share/debootstrap/scripts/sid)
    say "making a root of Debian $suite in $dir (takes about 2 minutes)"
    log=$(mktemp)
    as_root sh -c 'umask 022 && rm -rf --one-file-system "$1.new" && mkdir -p "$(dirname "$1")"' sh "$dir"
    as_root debootstrap --variant=minbase --include=ca-certificates "$suite" "$dir.new" \
        "$(debian_mirror)" "${script[@]}" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "debootstrap failed, see above"
    }
    rm -f "$log"
    # No service of a package is to be started: the network is the machine's own.
    printf '#!/bin/sh\nexit 101\n' | as_root sh -c 'cat >"$1" && chmod 755 "$1"' sh "$dir.new/usr/sbin/policy-rc.d"
    # The name says that the root is complete.
    as_root mv "$dir.new" "$dir"
}

# The directory of the Rust toolchain in use here.
toolchain() {
    local dir
    command -v rustc >/dev/null || die "rustc is not on the PATH. Install Rust (https://rustup.rs), then try again."
    dir=$(cd "$ROOT" && rustc --print sysroot)
    [[ $dir != /usr ]] || die "Debian's own rustc cannot be brought into a chroot of another suite. Use rustup's."
    printf '%s\n' "$dir"
}

enter_root() { as_root "$ROOT/tools/chroot-enter.sh" "$@"; }
