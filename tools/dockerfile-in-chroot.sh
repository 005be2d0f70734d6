#!/usr/bin/env bash
# dockerfile-in-chroot.sh: runs the steps of the Dockerfile without a container engine, for PostgreSQL
# $PG, and looks at what it made. Needs root.
#
# It reads the instructions that our Dockerfile uses and stops at any other. Stand-ins: for the image
# postgres:N a root of the Debian suite that ships PostgreSQL N, with that package; for rust:V the Rust
# toolchain of this machine. So it proves the steps, not the base images. There is no layer cache.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tools/chroot-lib.sh"
[[ $EUID -eq 0 ]] || die "image-check needs root: run 'sudo make image-check'"

IMAGES=$ROOT_STATE/image-pg$PG
RUST=$(toolchain)
declare -A stage_dir arguments=()
stage=      # directory of the current stage
workdir=/
user=root
declare -A environment=()

make_state_dir
rm -rf --one-file-system -- "$IMAGES"
mkdir "$IMAGES"
trap 'rm -rf --one-file-system -- "$IMAGES"' EXIT

# run_in DIR COMMAND...: with the current user, working directory and environment
run_in() {
    local dir=$1 name options=(--bind-ro "$RUST" /opt/rust --chdir "$workdir")
    shift
    for name in "${!arguments[@]}"; do options+=(--env "$name=${arguments[$name]}"); done
    for name in "${!environment[@]}"; do options+=(--env "$name=${environment[$name]}"); done
    if [[ $user != root ]]; then
        options+=(--user "$(id_in passwd "$user")" "$(id_in group "$user")" --env HOME=/var/lib/postgresql)
    fi
    enter_root "$dir" "${options[@]}" -- "$@"
}

id_in() { awk -F: -v name="$2" '$1 == name { print $3 }' "$stage/etc/$1"; }

# Puts the values of arguments and variables for ${NAME}.
expand() {
    local text=$1 name
    for name in "${!arguments[@]}"; do text=${text//"\${$name}"/${arguments[$name]}}; done
    for name in "${!environment[@]}"; do text=${text//"\${$name}"/${environment[$name]}}; done
    [[ $text != *'${'* ]] || die "Dockerfile: unknown variable in: $text"
    printf '%s\n' "$text"
}

base_root() { # the stand-in for postgres:N
    local base=$IMAGES/base
    if [[ ! -d $base ]]; then
        make_root "$(suite_with "$PG")" "$base" >&2
        enter_root "$base" --bind-ro "$ROOT/tools" /tools -- /tools/prereqs.sh "postgresql-$PG" >&2
    fi
    printf '%s\n' "$base"
}

do_from() { # IMAGE [AS NAME]
    local image=$1 name=${3:-final} source
    case $image in
        "postgres:$PG-"*)
            source=$(base_root)
            workdir=/ user=root
            environment=([PATH]=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/$PG/bin)
            ;;
        *)
            # A stage goes on with the settings of the one it is made from; ours is always the last.
            source=${stage_dir[$image]:-}
            [[ -n $source && $source == "$stage" ]] || die "Dockerfile: no stand-in for image $image"
            ;;
    esac
    stage=$IMAGES/$name
    stage_dir[$name]=$stage
    cp -a --reflink=auto "$source" "$stage"
}

do_copy() { # [--from=IMAGE] [--chown=USER] SOURCE... DIRECTORY
    local from='' owner=0 group=0 source exclude=()
    while [[ $1 == --* ]]; do
        case $1 in
            --from=*) from=${1#*=} ;;
            --chown=*) owner=$(id_in passwd "${1#*=}") group=$(id_in group "${1#*=}") ;;
            *) die "Dockerfile: COPY $1 is not known here" ;;
        esac
        shift
    done
    local target=${*: -1} sources=("${@:1:$#-1}")
    [[ $target == /* ]] || target=$workdir/$target
    mkdir -p "$stage$target"
    case $from in
        rust:*)
            # Its cargo home holds the programs, and is writable for all.
            chmod 1777 "$stage$target"
            [[ $target != */cargo ]] || ln -s /opt/rust/bin "$stage$target/bin"
            return
            ;;
        '')
            from=$ROOT
            while read -r source; do exclude+=(--exclude="./$source"); done <"$ROOT/.dockerignore"
            ;;
        *) from=${stage_dir[$from]} ;;
    esac
    for source in "${sources[@]}"; do
        # Of a directory COPY takes what is in it, of a file its last name.
        local parent=$from/$source entry=.
        [[ -d $parent ]] || entry=./$(basename "$source") parent=$(dirname "$parent")
        tar -C "$parent" --anchored "${exclude[@]}" --owner="x:$owner" --group="x:$group" -c "$entry" |
            tar -C "$stage$target" --no-overwrite-dir --numeric-owner -x
    done
}

do_instruction() { # INSTRUCTION REST
    local words pair
    case $1 in
        RUN)
            run_in "$stage" sh -c "$2"
            return
            ;;
        FROM | ARG | ENV | WORKDIR | USER | COPY) read -ra words <<<"$(expand "$2")" ;;
        *) die "Dockerfile: $1 is not known here" ;;
    esac
    case $1 in
        FROM) do_from "${words[@]}" ;;
        ARG) arguments[PG_MAJOR]=$PG ;;
        ENV) for pair in "${words[@]}"; do environment[${pair%%=*}]=${pair#*=}; done ;;
        WORKDIR) workdir=${words[0]} && mkdir -p "$stage$workdir" ;;
        USER) user=${words[0]} ;;
        COPY) do_copy "${words[@]}" ;;
    esac
}

grep -q "^COPY --from=rust:$(sed -nE 's/^channel *= *"(.*)"/\1/p' "$ROOT/rust-toolchain.toml")-" "$ROOT/Dockerfile" ||
    die "the Dockerfile's rust image is not the version of rust-toolchain.toml"

mapfile -t lines < <(sed -e '/^ *#/d' -e '/^ *$/d' -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' "$ROOT/Dockerfile")
number=0
for line in "${lines[@]}"; do
    number=$((number + 1))
    say "step $number/${#lines[@]}: $line"
    do_instruction "${line%% *}" "${line#* }"
done

say "what the image adds to postgres:$PG"
added=$(cd "$stage" && find usr -type f -newer "$IMAGES/base/etc/passwd" -name 'checkpointer*' | sort)
others=$(diff -rq --no-dereference "$IMAGES/base/usr" "$stage/usr" | grep -v ': checkpointer' || true)
printf '%s\n' "$added"
[[ -z $others ]] || die "the image has other changes: $others"
[[ $added == *checkpointer.so*checkpointer--*.sql*checkpointer.control* || $added == *.so*.control*.sql* ]] ||
    die "a library, a control file and a script were expected"

say "CREATE EXTENSION in the image"
user=postgres workdir=/
run_in "$stage" sh -c 'initdb -D /tmp/data >/tmp/log 2>&1 &&
    echo "CREATE EXTENSION checkpointer" | postgres --single -j -D /tmp/data postgres >>/tmp/log 2>&1 &&
    echo "SELECT extversion FROM pg_extension WHERE extname = '\''checkpointer'\''" |
        postgres --single -D /tmp/data postgres 2>>/tmp/log | grep "extversion = " ||
    { cat /tmp/log >&2; exit 1; }'
