#!/usr/bin/env bash
# clean.sh: removes what was built for PostgreSQL $PG and its chroot, but not the private cluster.
. "$(dirname "$0")/lib.sh"

"$ROOT/tools/cluster.sh" stop
for dir in "$BUILD/build" "$BUILD/package" "$BUILD/pgrx" "$BUILD/regress" "$HOST_BUILD" "$TREE"; do
    rm -rf -- "$dir"
done
# What the chroot mounts is only ever mounted in a namespace that is gone when the command is.
if [[ -d $CHROOT ]]; then
    can_be_root || die "removing $CHROOT needs root: run 'sudo rm -rf --one-file-system $CHROOT'"
    as_root rm -rf --one-file-system -- "$CHROOT"
fi
