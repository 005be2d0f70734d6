#!/usr/bin/env bash
# chroot-enter.sh ROOT [OPTION...] -- COMMAND...: runs COMMAND in the Debian root ROOT; needs root.
#   --bind DIR AS, --bind-ro DIR AS   shows DIR of this machine inside as AS
#   --user UID GID                    runs COMMAND as this user
#   --env NAME=VALUE                  sets a variable; the variables for package registries are set as here
#   --chdir DIR                       runs COMMAND there
#
# All is mounted in a namespace of its own, which the kernel ends with its first process: no mount and
# no process is left behind whatever happens, and this machine never sees the mounts, so that removing
# ROOT cannot remove what was bound into it.
. "$(dirname "$0")/lib.sh"

root=$1
shift
if [[ -z ${CKPT_NAMESPACE:-} ]]; then
    CKPT_NAMESPACE=1 unshare --mount --propagation private --pid --fork --kill-child --ipc \
        "$0" "$root" "$@" </dev/null &
    namespace=$!
    # unshare itself does not listen to these.
    trap 'kill -KILL "$namespace" 2>/dev/null; exit 143' INT TERM HUP
    status=0
    wait "$namespace" || status=$?
    exit "$status"
fi

as_user=()
variables=(HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" CKPT_IN_CHROOT=1)
directory=/
while [[ $1 != -- ]]; do
    case $1 in
        --bind | --bind-ro)
            mkdir -p "$root$3"
            mount --bind "$2" "$root$3"
            [[ $1 == --bind ]] || mount -o remount,bind,ro "$root$3"
            shift 3
            ;;
        --user) as_user=(setpriv --reuid="$2" --regid="$3" --init-groups --) && shift 3 ;;
        --env) variables+=("$2") && shift 2 ;;
        --chdir) directory=$2 && shift 2 ;;
        *) die "chroot-enter.sh: unknown option $1" ;;
    esac
done
shift

# A variable that names a certificate file is of use only with that file; one that names a directory
# of this machine is of none.
certificates=/usr/local/share/host-certificates
while read -r name; do
    value=${!name}
    [[ ! -d $value ]] || continue
    if [[ $value == /* && -f $value ]]; then
        mkdir -p "$root$certificates"
        cp -L "$value" "$root$certificates/$name"
        value=$certificates/$name
    fi
    variables+=("$name=$value")
done < <(passed_variables)

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for file in /etc/resolv.conf /etc/hosts; do
    [[ ! -e $file ]] || cp -L --remove-destination "$file" "$root$file"
done
# apt may be told of a proxy in its own settings.
apt-config dump 2>/dev/null | grep '^Acquire::https\?::Proxy' >"$root/etc/apt/apt.conf.d/90host-proxy" || true

# Not exec: this shell is the first process of its namespace, and stays to reap the others.
status=0
chroot "$root" "${as_user[@]}" env -i --chdir="$directory" "${variables[@]}" "$@" || status=$?
exit "$status"
