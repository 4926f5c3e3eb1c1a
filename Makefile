# Every target works on a clean clone with Python >= 3.11; `make setup` runs first where it is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCHEDULES ?= 1000
MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help setup packages demo test test-fast kill-campaign check bench pictures pins clean campaign fuzz soak overload-campaign moves-campaign lifetimes-campaign roaming-campaign theory-campaign coverage-campaign verdict-campaign algorithms-campaign workloads-campaign gate-campaign tandem-campaign placement-campaign local-campaign docker-campaign

help: ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

setup: $(READY) ## make .venv with everything in it (nothing to do when it is current)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "brokerbed needs Python 3.11 or newer; $(PYTHON) is older: make PYTHON=python3.12 ..."; exit 3; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: apt-get install python3-venv)"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling editables setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--no-build-isolation --editable '.[dev]'
	$(BIN)/python -m brokerbed.analysis.java
	$(BIN)/python -m brokerbed.class_archive
	@touch $(READY)

packages: ## install the packages that tests use, as root on Debian or Ubuntu; elsewhere, or with BROKERBED_NO_INSTALL=1, name them
	@$(PYTHON) -m tests.needs || true

demo: setup ## run the quickstart scenario as real processes and compare it with its prediction
	$(BIN)/brokerbed run quickstart

test: packages setup ## run all tests (docker tests where an engine has an image; always with BROKERBED_REQUIRE_DOCKER=1)
	$(BIN)/pytest -n 2 --dist loadscope

test-fast: setup ## run the tests that need no Spark, no containers and no real time (a minute and a half)
	$(BIN)/pytest -n 2 --dist loadfile tests/unit tests/property tests/mqtt tests/broker tests/report

kill-campaign: setup ## kill brokers 300 times under load: no acknowledged message may be lost (about 3 minutes)
	$(BIN)/python -m tests.durability.campaign

check: setup ## check lint, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## run the benchmarks, which print figures and ratios and assert nothing
	$(BIN)/python -m bench.predict_sweep
	$(BIN)/python -m bench.advise_time
	$(BIN)/python -m bench.broker_speed
	$(BIN)/python -m bench.fairness
	$(BIN)/python -m bench.tree_speed
	$(BIN)/python -m bench.relay_cost
	$(BIN)/python -m bench.durable_speed
	$(BIN)/python -m bench.simulator_speed
	$(BIN)/python -m bench.session_moves
	$(BIN)/python -m bench.missed_messages
	$(BIN)/python -m bench.filter_changes
	$(BIN)/python -m bench.broker_memory
	$(BIN)/python -m bench.growth
	$(BIN)/python -m bench.analysis_speed

pictures: setup ## renew docs/images, from runs in a real Chromium (over three minutes)
	$(BIN)/python -m tests.browser.pictures

campaign: setup ## run SCHEDULES random fault schedules of all routing algorithms on simulated networks (1000: half a minute)
	$(BIN)/python -m tests.virtual.campaign --schedules $(SCHEDULES)

fuzz: setup ## fuzz decoders, core, loader, log reader and HTTP API for MINUTES (10), guided by coverage
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt atheris
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

soak: setup ## load a tree of real brokers with half its maximum rate for MINUTES (10), watch for drift, draw soak.html
	$(BIN)/python -m tests.local.soak --minutes $(MINUTES)

overload-campaign: setup ## load brokers with a million topics, a million filters, 10 000 connections and so on, beside Mosquitto (10 minutes)
	$(BIN)/python -m bench.overload

moves-campaign: setup ## move links under load while faults strike: 1000 schedules on simulated networks, then 50 moves of real brokers (5 minutes)
	$(BIN)/python -m tests.virtual.campaign --moves
	$(BIN)/python -m tests.local.moves

lifetimes-campaign: setup ## run 200 fault schedules with messages that expire on simulated networks, and ten on real brokers
	$(BIN)/python -m tests.virtual.campaign --lifetimes --schedules 200
	$(BIN)/python -m tests.local.lifetimes

roaming-campaign: setup ## have sessions follow their clients while faults strike: 1000 schedules on simulated networks, then 100 kills of real brokers; then compare peers that roam with theory (hours)
	$(BIN)/python -m tests.virtual.campaign --roaming --schedules 1000
	$(BIN)/python -m tests.local.roaming
	$(BIN)/python -m tests.analysis.roaming
	$(BIN)/python -m tests.analysis.roaming --on local

coverage-campaign: setup ## show how often 95% intervals contain the true value, for drawn series and 400 runs (twenty minutes)
	$(BIN)/python -m tests.unit.analysis.drawn
	$(BIN)/python -m tests.unit.analysis.drawn_until
	$(BIN)/python -m tests.analysis.coverage

gate-campaign: setup ## show how often `gate` raises a false alarm and finds a change of 5%, for drawn series and 600 runs
	$(BIN)/python -m tests.unit.analysis.gated
	$(BIN)/python -m tests.analysis.gates

verdict-campaign: setup ## run and compare the shipped scenarios of the papers, and peers that come and go (over an hour)
	$(BIN)/python -m tests.analysis.campaign
	$(BIN)/python -m tests.analysis.connectivity

algorithms-campaign: setup ## run all routing algorithms on three simulated trees and on running brokers, and compare (hours)
	$(BIN)/python -m tests.analysis.algorithms
	$(BIN)/python -m tests.analysis.algorithms --on local
	$(BIN)/python -m tests.local.wire

workloads-campaign: setup ## run workloads of the papers on simulated trees and on running brokers, and compare (an hour)
	$(BIN)/python -m tests.analysis.workloads
	$(BIN)/python -m tests.analysis.workloads --on local

theory-campaign: setup ## compare simulations of the papers' settings with their predictions (hours)
	$(BIN)/python -m tests.virtual.theory

tandem-campaign: setup ## compare the model of two intermittent peers in series with simulated truths
	$(BIN)/python -m tests.unit.analysis.tandem_campaign

placement-campaign: setup ## compare the trees of adaptive placement with the best ones (some minutes)
	$(BIN)/python -m tests.virtual.placement_campaign

local-campaign: setup ## compare running brokers with theory, and under faults (over an hour, on a quiet machine)
	$(BIN)/python -m tests.local.campaign

docker-campaign: setup ## the same as local-campaign, in containers (over an hour, on a quiet machine)
	$(BIN)/python -m tests.local.campaign --on docker

pins: ## renew constraints.txt with the newest versions
	tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && $(PYTHON) -m venv $$tmp/venv && \
	$$tmp/venv/bin/pip install --quiet hatchling editables setuptools '.[dev,fuzz]' && \
	{ head -1 constraints.txt; $$tmp/venv/bin/pip freeze --all | grep -v '^pip=' | grep -v ' @ ' | sort -f; } > $$tmp/pins && mv $$tmp/pins constraints.txt

clean: ## remove .venv, caches and run directories
	rm -rf $(VENV) runs dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
