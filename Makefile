# Everything that a person or a CI machine does with Sluice. `make` lists it.
# Needs Rust, Go, a C compiler and make, for `test` also Chromium; nothing else, and no container engine (except `image`).

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
XTASK  := $(TARGET)/debug/sluice-xtask

# The command that makes the binaries that ship; the Dockerfile's build stage runs the same one.
BUILD := cargo build --release --locked --package sluice-cli --package sluice-ctl && ./split-debug.sh sluice kubectl-kueue

# The commit that the binaries name, and its date, so that a build of the same commit is the same; unknown outside of git, as in a tarball.
GIT        := git --git-dir='$(CURDIR)/.git'
GIT_COMMIT = $(or $(shell $(GIT) describe --always --exclude='*' --abbrev=40 --dirty 2>/dev/null),unknown)
BUILD_DATE = $(or $(shell $(GIT) log -1 --format=%cI 2>/dev/null),unknown)
STAMP      = SLUICE_GIT_COMMIT=$(GIT_COMMIT) SLUICE_BUILD_DATE=$(BUILD_DATE)

EXAMPLE ?= tpu-multislice
RACE_SIZE ?= small
# How many jobs `make day` makes, in how many minutes at most. SOAK_SEED=… plays a day again.
SOAK_JOBS    ?= 10000
SOAK_MINUTES ?= 600
SOAK_SEED    ?= $(shell date +%s)
SOAK_SCALE   ?= 4
SOAK_USERS   ?= 1
SOAK_PAUSES  ?= 1
# The seed of the property tests: one for all runs, so that a failure is the change's; `make properties` looks for new cases.
export PROPTEST_RNG_SEED ?= 0
# How long `make fresh` plays.
FRESH_SECONDS ?= 3600
# How long `make fuzz` runs each target.
FUZZ_SECONDS ?= 60
ENGINE  ?= $(shell command -v docker || command -v podman)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
IMAGE   ?= sluice:$(VERSION)

# Builds the book. Its version is in its path, so that another one is not taken for it.
MDBOOK_VERSION := 0.5.4
MDBOOK  := $(TARGET)/tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook

# A macro makes the modules of the job kinds, where cargo fmt does not find them.
FORMAT_KINDS := rustfmt --edition 2024 crates/jobs/src/*/mod.rs

# Ends a target that needs a command of cargo that is not installed.
needs = @cargo $(1) --version >/dev/null 2>&1 || { echo "make $@ needs cargo-$(1): cargo install cargo-$(1) --locked" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help build fmt check test lint try demo docs book bench bench-hotswap race crds image clean mutants mutants-sample exhaustive fresh properties dev control-plane fuzz day soak soak-tools

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the release binaries, target/release/sluice and target/release/kubectl-kueue, with their debug info beside them (*.debug)
	$(STAMP) $(BUILD)

fmt: ## Format the code, also that of the job kinds, which cargo fmt alone does not find
	cargo fmt --all
	$(FORMAT_KINDS)

check: ## Check what needs no control plane, in minutes: format, rules of the house, generated files, unit tests and rules
	cargo fmt --all --check
	$(FORMAT_KINDS) --check
	cargo build --locked --workspace
	$(XTASK) crds --check
	$(XTASK) tidy
	$(XTASK) test --quick

test: control-plane ## Run all tests, including those on a real control plane; the ten slowest are named at the end
	SLUICE_ALL_STORIES=1 SLUICE_BIN=$(TARGET)/debug/sluice $(XTASK) test

soak: soak-tools day fresh properties exhaustive fuzz mutants ## Run what takes hours: a long day, fresh worlds, all small worlds, fuzzing, mutants (each is a target of its own)

# What the last of them need is missed before the first.
soak-tools:
	$(call needs,fuzz)
	$(call needs,mutants)

day: control-plane ## Play a long and bad day, and prove from etcd's history that nothing was lost or bypassed (SOAK_JOBS, SOAK_MINUTES, SOAK_SEED, SOAK_SCALE, SOAK_USERS, SOAK_PAUSES)
	GOMEMLIMIT=6GiB SLUICE_BIN=$(TARGET)/debug/sluice SOAK_JOBS=$(SOAK_JOBS) SOAK_MINUTES=$(SOAK_MINUTES) SOAK_SEED=$(SOAK_SEED) SOAK_SCALE=$(SOAK_SCALE) SOAK_USERS=$(SOAK_USERS) SOAK_PAUSES=$(SOAK_PAUSES) \
		cargo test --locked --package sluice-tests --test faults soak:: -- --nocapture

fresh: ## Play worlds with fresh seeds on bad days for FRESH_SECONDS
	FRESH_SECONDS=$(FRESH_SECONDS) cargo test --release --locked --package sluice-sim --test faults fresh -- --nocapture

properties: dev ## Play the property tests with a fresh seed, and more of them (PROPTEST_RNG_SEED=… plays it again)
	PROPTEST_RNG_SEED=$(SOAK_SEED) $(XTASK) test --quick

lint: control-plane ## Check format, lints, rules of the house and generated files
	cargo fmt --all --check
	$(FORMAT_KINDS) --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(XTASK) crds --check
	$(XTASK) manifests --check
	$(XTASK) tidy
	$(XTASK) docs --check
	set -e; for crate in $$($(XTASK) tidy --alone); do cargo check --quiet --locked --package $$crate; done

try: ## Show a simulated day: figures, and a page with pictures (builds only the simulator)
	cargo build --profile try --locked --package sluice-ctl --bin kubectl-kueue --no-default-features
	$(TARGET)/try/kubectl-kueue simulate examples/simulate/arrivals.yaml --quiet --output html > $(TARGET)/try/day.html
	$(TARGET)/try/kubectl-kueue simulate examples/simulate/arrivals.yaml --quiet
	@echo "The day in pictures: $(TARGET)/try/day.html"

# Builds the manager and the development commands once, in one profile; the demo builds the programs that it starts, and no others.
demo: ## Show queueing on a cluster of fake nodes (EXAMPLE=folder of examples/, KEEP=1 keeps it)
	cargo build --locked --package sluice-cli --package sluice-xtask
	SLUICE_BIN=$(TARGET)/debug/sluice $(XTASK) demo --example $(EXAMPLE) $(if $(KEEP),--keep)

docs: dev ## Write the generated tables of the book in docs, and check it
	$(XTASK) docs

book: dev $(MDBOOK) ## Check the book in docs, and build it into target/book (gets mdbook)
	MDBOOK=$(MDBOOK) $(XTASK) docs --check --build

$(MDBOOK):
	cargo install mdbook --version $(MDBOOK_VERSION) --locked --debug --no-default-features --root $(@D)/.. --target-dir $(TARGET)/mdbook

bench: ## Measure the engine and compare with the budgets
	$(STAMP) cargo run --release --locked --package sluice-xtask -- bench

bench-hotswap: control-plane ## Measure the time to recovery with and without Hotswap on a control plane (8 minutes)
	SLUICE_BIN=$(TARGET)/debug/sluice cargo test --locked --package sluice-tests --features bench-hotswap --test operator hotswap::recovery -- --nocapture

race: control-plane ## Let a manager admit RACE_SIZE (tiny, small, baseline, large, huge, preemption, steady, freed) Workloads, and count its writes; RACE_MANAGER is the command of another manager, RACE_FLAGS=--jobs makes Jobs
	$(STAMP) $(BUILD)
	$(STAMP) GOMEMLIMIT=6GiB SLUICE_BIN=$(TARGET)/release/sluice cargo run --release --locked --package sluice-xtask -- \
		race --size $(RACE_SIZE) $(RACE_FLAGS) $(if $(RACE_MANAGER),--manager-cmd '$(RACE_MANAGER)')

crds: dev ## Generate the CRDs, the chart's copy of them and the plain manifests
	$(XTASK) crds
	$(XTASK) manifests

image: ## Build the container image (needs docker or podman)
	@test -n "$(ENGINE)" || { echo "make image needs docker or podman" >&2; exit 1; }
	$(ENGINE) build --build-arg SOURCE_DATE_EPOCH=$(or $(shell $(GIT) log -1 --format=%ct 2>/dev/null),0) \
		$(addprefix --build-arg ,$(STAMP)) --tag $(IMAGE) .

mutants: ## Change the core's code on purpose and see whether a test notices (needs cargo-mutants; SHARD=1/20 does a part)
	$(call needs,mutants)
	cargo mutants --package sluice-core $(if $(SHARD),--shard $(SHARD))

mutants-sample: dev ## Make the changes of tests/mutants.toml to a copy of the core: a test must notice each (minutes; for CI)
	$(XTASK) mutants

exhaustive: ## Enumerate all small worlds against the oracle (hours; `test` takes a sample of seconds)
	SLUICE_EXHAUSTIVE=all cargo test --release --locked --package sluice-core --features exhaustive --test agreement

fuzz: ## Fuzz the engine and the API, FUZZ_SECONDS each (needs cargo-fuzz)
	$(call needs,fuzz)
	set -e; for target in core/core_events api/api_conversion api/api_validation; do \
		cargo fuzz run --fuzz-dir tests/fuzz/$${target%/*} --sanitizer none $${target#*/} -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096; \
	done

clean: ## Remove everything that was built, the control plane too
	cargo clean
	rm -rf .cache

# What tests and development commands are built from, once.
dev:
	cargo build --workspace --locked

# etcd, kube-apiserver, kubectl, …; a second run builds nothing. Honours KUBEBUILDER_ASSETS.
control-plane: dev
	$(XTASK) control-plane build
