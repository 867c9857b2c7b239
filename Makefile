# The few commands that working on leafhopper takes. Each gets what is missing on this machine, as root by
# apt, as anybody else without installing anything. Cargo can be given more words: make test ARGS=cluster

ARGS =

# Most tests wait most of the time.
THREADS = $(shell echo $$((2 * $$(nproc))))

# For `make majors`.
MAJORS = 14 15 16 17 18

LEAST = crashes:: g01 g02 g03 g05 g06 g07 g08 g09 probes:: reasons:: untracked retention:: api:: commands

.PHONY: help demo test least leaves storm races failover majors history pictures bench lint build ready

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.* ## /\1\t/p' Makefile | expand -t 8

demo: ready ## Run an app, leaves that misbehave and the sidecar against a throw-away PostgreSQL
	cargo run --locked -- demo $(ARGS)

test: ready ## Run all tests but those of storm, races, history and leaves, on a PostgreSQL of their own
	TMPDIR=$$(.ci/scratch) RUST_TEST_THREADS=$(THREADS) cargo test --locked -- $(ARGS)

least: ready ## Run tests of a call's whole way with sidecars that have a sidecar's rights and no other
	TMPDIR=$$(.ci/scratch) LEAFHOPPER_TEST_LOGIN=sidecar RUST_TEST_THREADS=$(THREADS) cargo test --locked --test it -- $(LEAST) $(ARGS)

storm: ready ## Kill sidecars 1,000 times under 100,000 calls, with all that can go wrong (STORM_SEED, _CALLS, _KILLS)
	cargo test --locked --test it -- --ignored --nocapture storm::the_storm

races: ready ## Cancel 10,000 batches at random instants over two sidecars (RACES, RACES_SEED)
	cargo test --locked --test it -- --ignored --nocapture g08_teardown_last::races

failover: ready ## Kill or fence primaries under load, one after the other (FAILOVER_ROUNDS, FAILOVER_CALLS)
	cargo test --locked --test it -- --ignored --nocapture failover::

majors: ready ## Run the tests on each major version of PostgreSQL (MAJORS="14 18" ARGS="migrations:: g03")
	@set -e; for major in $(MAJORS); do \
	  programs=$$(.ci/majors $$major); \
	  echo "PostgreSQL $$major: $$programs"; \
	  TMPDIR=$$(.ci/scratch) LEAFHOPPER_POSTGRES_BIN=$$programs RUST_TEST_THREADS=$(THREADS) cargo test --locked --test it -- $(ARGS); \
	done

history: ready ## Look at metrics, page and API beside 10,000,000 finished calls (HISTORY_CALLS)
	cargo test --locked --test it -- --ignored --nocapture history::

pictures: ready ## Take pictures of the operator's page: target/pictures, and the README's two
	.ci/chromium
	cargo test --locked --test it -- --ignored --nocapture page::pictures
	command -v pngquant >/dev/null || { echo "the README's pictures need pngquant: apt-get install pngquant" >&2; exit 1; }
	pngquant --force --strip --output docs/page-overview.png 48 target/pictures/readme-overview.png
	pngquant --force --strip --output docs/page-call.png 48 target/pictures/readme-call.png

bench: ready ## Measure beside graphile_worker, graphile-worker, pg-boss and a bare loop (about 20 minutes; docs/benchmarks.md)
	benches/peers/install
	cargo bench --locked --bench compare -- $(ARGS)

leaves: ready ## Run the tests against servers of others, which it installs (all but Apache into target/leaves)
	.ci/leaves
	cargo test --locked --test it -- --ignored others_leaves --show-output $(ARGS)

lint: ## Check format, lints, documentation and (where cargo-deny is installed) dependencies
	.ci/lint

build: ## Build the program for use: target/release/leafhopper
	.ci/compiler
	cargo build --locked --release --package leafhopper

ready:
	@.ci/compiler
	@.ci/postgres
