#!/usr/bin/env bash
# in-chroot.sh TARGET: runs `make TARGET` in a chroot of the Debian suite that ships PostgreSQL $PG.
# The clone, cargo's home and ../shared are the machine's own, at their own paths.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tools/chroot-lib.sh"

target=$1
suite=$(suite_with "$PG")
[[ -z ${CKPT_IN_CHROOT:-} ]] || die "no PostgreSQL $PG in this chroot of Debian $SUITE. Remove it with 'make clean PG=$PG'."
say "this machine's packages have no PostgreSQL $PG: running 'make $target' in a chroot of Debian $suite"

cargo_home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$cargo_home"
rust=$(toolchain)
options=(
    --bind "$ROOT" "$ROOT" --chdir "$ROOT"
    --bind "$cargo_home" "$cargo_home" --env CARGO_HOME="$cargo_home"
    --bind-ro "$rust" /opt/rust
    --env PATH="/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$cargo_home/bin"
)
[[ ! -d $ROOT/../shared ]] || options+=(--bind-ro "$ROOT/../shared" "$(dirname "$ROOT")/shared")
if [[ -n ${INPUT:-} ]]; then
    INPUT=$(realpath -- "$INPUT")
    options+=(--bind-ro "$(dirname "$INPUT")" "$(dirname "$INPUT")")
fi

make_root "$suite" "$CHROOT"
packages=(make)
[[ $target != lint ]] || packages+=(shellcheck)
[[ $target != test && ! ($target == client && -n ${POOLER:-}) ]] || packages+=(pgbouncer)
enter_root "$CHROOT" "${options[@]}" -- sh -c 'tools/prereqs.sh "$@" && tools/prereqs.sh' sh "${packages[@]}"

if [[ $EUID -ne 0 ]]; then
    # The same user inside, so that what is built belongs to the user outside.
    enter_root "$CHROOT" -- sh -c 'getent passwd "$1" >/dev/null || {
            getent group "$2" >/dev/null || groupadd --gid "$2" "$3"
            useradd --uid "$1" --gid "$2" --no-create-home --home-dir "$4" "$3"
        }' sh "$(id -u)" "$(id -g)" "$(id -un)" "$HOME"
    options+=(--user "$(id -u)" "$(id -g)" --env HOME="$HOME")
fi
enter_root "$CHROOT" "${options[@]}" -- make --no-print-directory "$target"
