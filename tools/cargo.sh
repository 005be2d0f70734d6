#!/usr/bin/env bash
# cargo.sh deps|build|unit|bench|lint: all that is done with cargo, for PostgreSQL $PG.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

command -v cargo >/dev/null || die "cargo is not on the PATH. Install Rust (https://rustup.rs), then try again."
"$ROOT/tools/prereqs.sh"

# One directory for each major version, so that their builds do not undo each other.
export CARGO_TARGET_DIR=$BUILD/build
# pgrx keeps its list of servers in its home: ours, so that the user's ~/.pgrx stays as it is.
export PGRX_HOME=$BUILD/pgrx
features=(--no-default-features --features "pg$PG")
mkdir -p "$PGRX_HOME"
printf '[configs]\npg%s = "%s"\n' "$PG" "$SYSTEM_PG/bin/pg_config" >"$PGRX_HOME/config.toml"

# cargo-pgrx must have exactly the version of the pgrx crate, which Cargo.toml pins with "=".
find_cargo_pgrx() {
    local version tools=$HOST_BUILD/tools
    version=$(sed -nE 's/^pgrx *=.*"=([0-9.]+)".*/\1/p' Cargo.toml)
    [[ -n $version ]] || die 'Cargo.toml does not pin pgrx: expected a line like pgrx = "=0.18.1"'
    [[ $(cargo pgrx --version 2>/dev/null) == "cargo-pgrx $version" ]] && return
    export PATH=$tools/bin:$PATH
    [[ $(cargo pgrx --version 2>/dev/null) == "cargo-pgrx $version" ]] && return
    say "installing cargo-pgrx $version for this clone (takes about 3 minutes)"
    # Without optimization: it is built in a fraction of the time, and has little to do.
    CARGO_TARGET_DIR=$tools/build cargo install --quiet --debug cargo-pgrx --version "$version" --locked --root "$tools"
    rm -rf "$tools/build"
}

first_build_hint() {
    [[ -d $CARGO_TARGET_DIR/$1 ]] || printf ' (the first build takes about 3 minutes)'
}

# What the package is made from: the sources, the tools and the server's headers.
made_from() {
    find src sql Cargo.toml Cargo.lock checkpointer.control rust-toolchain.toml tools/cargo.sh -type f -print0 |
        sort -z | xargs -0 sha256sum
    rustc --version
    "$SYSTEM_PG/bin/pg_config" --version
}

case ${1-} in
    deps)
        find_cargo_pgrx
        say "building the crates that the extension needs, for PostgreSQL $PG$(first_build_hint release)"
        cargo build --quiet --release --lib "${features[@]}"
        ;;
    build)
        made_from=$(made_from)
        [[ $(cat "$BUILD/package/made-from" 2>/dev/null) != "$made_from" ]] || exit 0
        find_cargo_pgrx
        say "building the extension for PostgreSQL $PG$(first_build_hint release)"
        # The package holds the three kinds of files under the paths of the machine's own server. It is
        # made anew, so that a file of an older build cannot stay in it.
        rm -rf "$BUILD/package"
        log=$BUILD/build.log
        cargo pgrx package --pg-config "$SYSTEM_PG/bin/pg_config" --out-dir "$BUILD/package" \
            "${features[@]}" >"$log" 2>&1 || { cat "$log" >&2; die "the build failed, see above"; }
        printf '%s\n' "$made_from" >"$BUILD/package/made-from"
        ;;
    unit)
        say "unit and property tests$(first_build_hint debug)"
        cargo test --quiet --lib "${features[@]}"
        ;;
    bench)
        say "in-process benchmarks$(first_build_hint release)"
        # shellcheck disable=SC2086  # ARGS holds several words
        cargo bench --quiet --bench in_process "${features[@]}" -- ${ARGS:-}
        ;;
    lint)
        say "cargo fmt --check"
        cargo fmt --check || die "the code is not formatted: run 'cargo fmt'"
        say "clippy for PostgreSQL $PG$(first_build_hint debug)"
        cargo clippy --quiet --all-targets "${features[@]}" -- -D warnings
        ;;
    *) die "usage: $0 deps|build|unit|bench|lint" ;;
esac
