# checkpointer on the official PostgreSQL image: docker build --build-arg PG_MAJOR=17 .
# Without a container engine, `make image-check` runs these steps in Debian chroots; see there for
# the few instructions that it knows.
ARG PG_MAJOR=15

FROM postgres:${PG_MAJOR}-bookworm AS builder
ARG PG_MAJOR
# The compiler of rust-toolchain.toml.
COPY --from=rust:1.95.0-bookworm /usr/local/rustup /usr/local/rustup
COPY --from=rust:1.95.0-bookworm /usr/local/cargo /usr/local/cargo
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:${PATH} PG=${PG_MAJOR}
WORKDIR /src
# From what changes seldom to what changes often, so that most builds begin at the last step.
COPY tools/lib.sh tools/prereqs.sh tools/
RUN tools/prereqs.sh make && tools/prereqs.sh && chown -R postgres /src
# PostgreSQL does not run as root, and so the tests cannot.
USER postgres
COPY --chown=postgres tools/cargo.sh tools/
COPY --chown=postgres Cargo.toml Cargo.lock rust-toolchain.toml ./
RUN mkdir src && touch src/lib.rs && tools/cargo.sh deps
COPY --chown=postgres . .
# The empty file that stood in for it is newer than the real one: cargo would see no change.
RUN touch src/lib.rs && make build

FROM builder AS tester
RUN make unit regress

# From the tester, so that there is no image of an extension that fails its tests.
FROM postgres:${PG_MAJOR}-bookworm
ARG PG_MAJOR
COPY --from=tester /src/target/pg${PG_MAJOR}/package/usr/lib/postgresql/${PG_MAJOR}/lib/ /usr/lib/postgresql/${PG_MAJOR}/lib/
COPY --from=tester /src/target/pg${PG_MAJOR}/package/usr/share/postgresql/${PG_MAJOR}/extension/ /usr/share/postgresql/${PG_MAJOR}/extension/
