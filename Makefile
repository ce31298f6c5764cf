# The two commands of the README are `run` and `test`; each sets up what it needs and says so before it does.
.DEFAULT_GOAL := help
SHELL := /bin/bash
FAULT ?= partition
BACKEND ?= zk
# where rustup puts cargo, for a shell that was started before, and scripts/provide a server that Debian does not have
export PATH := $(PATH):$(HOME)/.cargo/bin:$(CURDIR)/target/servers

can-build: # before anything is installed
	@scripts/can-build

##@ Test a lock

run: ## a real ZooKeeper (BACKEND=etcd, redis, valkey, postgres, mariadb, nats) under partitions (FAULT=...), and the verdict
	@scripts/run $(BACKEND) $(FAULT) $(ARGS)

build: can-build ## the release binary, target/release/harness
	cargo build --release --locked

servers: ## programs and, where Docker runs, images for all backends
	@scripts/provide --all

images: ## server images from Debian packages, for machines that reach no registry
	@images/build.sh

adapters: build ## clients for lock libraries, to be run by name: `--client kazoo-lock` (`harness list clients`)
	@scripts/apt-install $$(sed -n 's/^packages = //p' workloads/adapters/adapters.toml | tr -d '[],"' | tr ' ' '\n' | sort -u)
	target/release/harness adapters

##@ Change harness

test: can-build ## the tests of a change, on real servers of all backends and every runtime that this machine has, and on models
	@scripts/provide-and-build-tests
	@scripts/test

lint: ## rustfmt and clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

fmt: ## formats the code
	cargo fmt --all

conformance: servers ## the models of the simulation against real servers, script by script (two minutes)
	cargo test --locked -p harness-simulation conformance

bench: ## what things cost, beside a peer or a limit: proxy, recording, checkers, and a change (an hour; ARGS=--without-durations)
	@scripts/provide --all
	@scripts/bench $(ARGS)

##@ Every night, and before a release

test-all: can-build ## all tests: those of `make test`, more of them on real servers, and features that are off by default (half an hour)
	@scripts/provide-and-build-tests --all
	@scripts/test --all

nightly: build servers ## the truth table, every lock under every fault (half an hour; ARGS="--jobs 2", "--filter redis")
	target/release/harness suite tests/suites/truth-table.toml $(ARGS)

strangers: build servers ## locks written by others, correct and broken, with what must be found (half an hour; ARGS="--jobs 3")
	target/release/harness suite tests/suites/strangers.toml $(ARGS)

no-fault: build servers ## the catalogue without a fault, where nothing may be violated (ARGS="--jobs 4")
	target/release/harness suite tests/suites/no-fault.toml $(ARGS)

versions: build servers ## locks on each version of the servers that can be fetched (a quarter of an hour; ARGS="--jobs 2", "--filter etcd")
	target/release/harness suite --versions $(ARGS)

libraries: adapters servers ## what is known of locks of known libraries, found again (a quarter of an hour; ARGS="--filter kazoo")
	target/release/harness suite tests/suites/libraries.toml $(ARGS)
	@scripts/finds

canaries: build servers ## small defects planted in locks, each to be found by a hunt that is told nothing (an hour; ARGS="--jobs 3", "--only redis")
	target/release/harness adapters kazoo-lock
	@scripts/canaries $(ARGS)

mutants: can-build ## the recipes with one condition or statement changed, each hunted on models (three quarters of an hour; ARGS="--only redlock --jobs 2")
	@scripts/mutants $(ARGS)

survey: build servers ## the hunts on lock libraries that tests/survey/records lacks, and docs/survey.md (three hours for all; ARGS="kazoo --jobs 2", "--newest --shrink", "--no-hunts")
	target/release/harness survey --page docs/survey.md $(ARGS)

soak: build servers ## random combinations for an hour each on ZooKeeper, etcd, Redis and NATS, and what they leave behind (ARGS="--minutes 5 redis")
	@scripts/soak $(ARGS)

kills: build servers images ## kills runs, suites and hunts at 200 random moments, here and in namespaces and containers, and looks at what is left (45 minutes; ARGS="--kills 20")
	@scripts/kills $(ARGS)

##@ Publish

dist: can-build ## a static binary with licences, pages, checksums and an SBOM, tested, in target/dist (TARGET=aarch64-unknown-linux-musl)
	@scripts/dist $(TARGET)

wheel: ## the checkers as a Python wheel with a pytest fixture, in target/wheels, and its tests
	@scripts/wheel

check-page: ## a page that checks a history which is dropped on it, target/page/check.html, and its tests
	@scripts/check-page

kubernetes: ## validates docs/kubernetes against the schemas of two versions
	@scripts/kubernetes

workflows: ## validates .github/workflows against GitHub's schema, and its scripts
	@scripts/workflows

help:
	@awk -F ':.*## ' '/^##@ / { print (NR > 1 && seen++ ? "\n" : "") substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: help can-build build dist run servers images test test-all adapters libraries strangers no-fault versions canaries mutants survey nightly soak kills bench conformance wheel check-page kubernetes workflows fmt lint
