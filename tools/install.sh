#!/usr/bin/env bash
# install.sh: makes the private PostgreSQL installation and puts the built extension into it.
#
# PostgreSQL finds its files relative to its own programs. So a tree with copies of the programs and
# links to everything else is a full installation of its own, with an extension directory of its own:
# the machine's server is never touched, and an ordinary user needs no root.
. "$(dirname "$0")/lib.sh"
make_state_dir

link_all() { # FROM TO: a real directory TO with a link to each entry of FROM
    mkdir -p "$2"
    find "$1" -mindepth 1 -maxdepth 1 -exec ln -s -t "$2" {} +
}

make_tree() {
    local new=$TREE.new share=/usr/share/postgresql/$PG
    rm -rf "$new"
    mkdir -p "$new/lib/postgresql/$PG" "$new/share/postgresql/$PG" "$new/include"
    cp -rL "$SYSTEM_PG/bin" "$new/lib/postgresql/$PG/bin"
    link_all "$SYSTEM_PG/lib" "$new/lib/postgresql/$PG/lib"
    link_all "$share" "$new/share/postgresql/$PG"
    rm "$new/share/postgresql/$PG/extension"
    link_all "$share/extension" "$new/share/postgresql/$PG/extension"
    ln -s /usr/include/postgresql "$new/include/postgresql"
    # The machine's server may have the extension as well.
    find "$new" -name 'checkpointer*' -delete
    printf '%s\n' "$1" >"$new/made-from"
    rm -rf "$TREE.old"
    [[ ! -e $TREE ]] || mv "$TREE" "$TREE.old"
    mv "$new" "$TREE"
    rm -rf "$TREE.old"
}

# put FILE DIR: by rename, because a running server has the old library mapped.
put() {
    local target=$2/${1##*/}
    cmp -s "$1" "$target" && return
    install -m 644 "$1" "$target.new"
    mv -f "$target.new" "$target"
}

package=$BUILD/package/usr
[[ -e $package/lib/postgresql/$PG/lib/checkpointer.so ]] || die "nothing is built for PostgreSQL $PG: run 'make install PG=$PG'"
umask 022
exec 9>"$STATE/install.lock"
flock 9

# The packages of the machine's server may have been upgraded since.
made_from=$(find "$SYSTEM_PG" "/usr/share/postgresql/$PG" -printf '%p %s %T@\n' |
    sort | cat - "${BASH_SOURCE[0]}" | sha256sum)
if [[ $(cat "$TREE/made-from" 2>/dev/null) != "$made_from" ]]; then
    say "making a private PostgreSQL $PG installation in $TREE"
    make_tree "$made_from"
fi

put "$package/lib/postgresql/$PG/lib/checkpointer.so" "$TREE/lib/postgresql/$PG/lib"
for file in "$package/share/postgresql/$PG/extension"/*; do
    put "$file" "$TREE_EXTENSION"
done
for file in "$TREE_EXTENSION"/checkpointer*; do
    [[ -e $package/share/postgresql/$PG/extension/${file##*/} ]] || rm "$file"
done
say "the extension is installed in $TREE"
