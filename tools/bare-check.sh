#!/usr/bin/env bash
# bare-check.sh [root|user]...: what a newcomer does, on a bare Debian that ships PostgreSQL $PG: a clone
# of HEAD, make demo, make test, make start; as root, and as an ordinary user who may use sudo.
# The machine's Rust toolchain, and ../shared if there is one, are all that is lent. Needs root.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tools/chroot-lib.sh"
[[ $EUID -eq 0 ]] || die "bare-check needs root: run 'sudo make bare-check'"

who=("$@")
[[ $# -gt 0 ]] || who=(root user)
suite=$(suite_with "$PG")
rust=$(toolchain)
bare=$ROOT_STATE/bare
make_state_dir
trap 'rm -rf --one-file-system -- "$bare"' EXIT

for name in "${who[@]}"; do
    say "bare Debian $suite: $name"
    rm -rf --one-file-system -- "$bare"
    make_root "$suite" "$bare"
    enter_root "$bare" -- sh -c 'apt-get -qq update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends git make sudo >/dev/null 2>&1'
    git -C "$ROOT" bundle create --quiet "$bare/srv/checkpointer.bundle" HEAD
    chmod 644 "$bare/srv/checkpointer.bundle"

    home=/root
    options=()
    if [[ $name == user ]]; then
        home=/home/user
        enter_root "$bare" -- sh -c 'useradd --uid 1500 --create-home --shell /bin/bash user &&
            echo "user ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/user'
        options=(--user 1500 1500 --env HOME=/home/user)
    fi
    options+=(
        --bind-ro "$rust" /opt/rust --chdir "$home"
        --env PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    )
    [[ ! -d $ROOT/../shared ]] || options+=(--bind-ro "$ROOT/../shared" "$home/shared")
    enter_root "$bare" "${options[@]}" -- bash -euc '
        git -c advice.detachedHead=false clone --quiet /srv/checkpointer.bundle checkpointer
        cd checkpointer
        make demo
        .ci/run
        first=$(make start | tail -n 1)
        second=$(make start | tail -n 1)
        echo "$first"
        [[ $first == postgresql://* && $first == "$second" ]]
        make psql ARGS="-c \"SELECT extversion FROM pg_extension WHERE extname = '\''checkpointer'\''\""
        make stop
        # Neither a cluster of the machine nor anything of ours may be left.
        [[ ! -e /etc/postgresql/$0/main ]]
        ! compgen -G "/tmp/checkpointer.*"
        [[ -z $(git status --porcelain) ]]' "$PG"
    say "bare Debian $suite: $name: all passed"
done
