# One target per chore; `make` alone lists them.

PYTHON ?= python3
WORKERS ?= 2
SEEDS ?= 300
SEED ?=
BENCHES := exchange isolation records

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup test run check format sim bench all clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything pinned (quick when nothing changed)

# Build without isolation, so that the build backend is pinned like everything else.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) hatchling
	$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	touch $@

test: $(READY) ## run all tests; SEEDS=n simulated runs among them (300)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --sim-seeds $(SEEDS)

run: $(READY) ## run the demo
	$(BIN)/python -m headgate demo

check: $(READY) ## lint, types, import contract, house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/pytest -q tests/test_house.py

format: $(READY) ## put the code in shape
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

sim: $(READY) ## simulate SEEDS=n runs, or replay one: SEED=41
	$(BIN)/python -m headgate.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

bench: $(READY) ## measure exchange, isolation and records
	set -e; for name in $(BENCHES); do $(BIN)/python -m headgate bench $$name; done

all: check test ## everything that CI runs

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
