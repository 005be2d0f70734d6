# The one place with the flags. `make help` lists what there is to say.
#
# PG chooses the PostgreSQL major version: 15, 17 or 18. Without it, it is the one that this Debian
# ships (15 on Debian 12). ARGS goes to psql, or chooses tests: see the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
export PG INPUT ARGS SMALL KILLS SEED POOLER

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build install
build: ## build the extension for PostgreSQL PG=15|17|18
	@tools/cargo.sh build
install: build ## install it into a private PostgreSQL under the build directory
	@tools/install.sh

.PHONY: start stop psql
start: install ## start a private server with the extension; the last line is its URI
	@tools/cluster.sh start
stop: ## stop the private server; its data stays
	@tools/cluster.sh stop
psql: ## open psql on the private server (ARGS='-c "SELECT 1"')
	@tools/cluster.sh psql $(ARGS)

# These also work with a PG that the machine's packages do not have: in a chroot.
.PHONY: demo test unit regress client torture lint
demo: ## kill an agent mid-step and see it resume (INPUT=FILE.jsonl replays recorded conversations)
	@tools/here-or-chroot.sh demo
test: ## run all tests
	@tools/here-or-chroot.sh test
unit: ## run the unit and property tests alone
	@tools/here-or-chroot.sh unit
regress: ## run the SQL regression tests alone (ARGS='errors nulls' chooses)
	@tools/here-or-chroot.sh regress
client: ## run the client tests alone (ARGS='-k resume' goes to pytest; POOLER=1 lets them go through pgbouncer)
	@tools/here-or-chroot.sh client
torture: ## kill clients and servers at work, then prove that nothing is lost or twice (KILLS=1000 SEED=7)
	@tools/here-or-chroot.sh torture
lint: ## check the formatting, and let clippy and shellcheck complain
	@tools/here-or-chroot.sh lint

# SMALL=1 takes fewer samples. ARGS chooses: for `bench` the measures, for `bench-units` by name.
.PHONY: bench bench-units
bench: ## measure against what it is compared with, and draw it (SMALL=1: in two minutes)
	@tools/bench.sh
bench-units: ## measure the pure parts by themselves, without a server
	@tools/cargo.sh bench

.PHONY: image-check bare-check
image-check: ## run the steps of the Dockerfile in Debian chroots (needs root)
	@tools/dockerfile-in-chroot.sh
bare-check: ## run demo and test on a bare Debian 12, as root and as an ordinary user (needs root)
	@tools/bare-check.sh

.PHONY: clean clean-data
clean: ## remove what was built for PG, and its chroot; the private server's data stays
	@tools/clean.sh
clean-data: ## remove the private server and its data
	@tools/cluster.sh clean
