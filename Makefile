# One target per chore; `make` alone lists them.

PYTHON ?= python3
WORKERS ?= 3
SEEDS ?= 1000
SEED ?=
SCENARIO ?=
BOOTSTRAP ?=
CORES := $(shell nproc 2>/dev/null || echo 1)
ONLY ?=
BENCHES := exchange isolation records keyed-count programs windows arrow dataframe latency startup state checkpoint recovery \
	observe sources calls

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
PIP_INSTALL := $(BIN)/python $(INSTALL) --constraint constraints.txt

OLDEST := $(VENV)/oldest
OLDEST_READY := $(OLDEST)/.ready
OLDEST_PYSPARK := 4.0.0
OLDEST_INSTALL := $(OLDEST)/bin/python $(INSTALL) --constraint $(OLDEST)/constraints.txt

# Tests start hundreds of Python processes, each of which would compile Headgate anew. Packages are
# compiled as they are imported, too, hence --no-compile: most of their modules never are.
unexport PYTHONDONTWRITEBYTECODE

# PySpark comes as source with 450 MB of archives: its wheel does not compress them once more.
export DIST_EXTRA_CONFIG := $(CURDIR)/.ci/wheels.cfg

.DEFAULT_GOAL := help
.PHONY: help setup tools test oldest run check lint types contract house archive format \
	sim fuzz faults soak why mutants kafka bench picture docs all clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything pinned (quick when nothing changed)

# Build without isolation, so that the build backends are pinned like everything else (PySpark
# comes as source).
$(READY): pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP_INSTALL) hatchling setuptools wheel
	$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	touch $@

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

tools: ## install the browser and the servers that tests use (quick when they are there)
	.ci/tools

test: $(READY) tools archive ## run all tests but the house rules of check; SEEDS=n simulated runs (1000)
	$(BIN)/pytest -q -n $(WORKERS) --dist load --sim-seeds $(SEEDS) -m 'not alone' --ignore tests/test_house.py
	$(BIN)/pytest -q -m alone tests/spark/test_why.py

# A venv of its own, inside the other: no second folder to ignore and to clean. PySpark 4.0 leaves
# sockets to the garbage collector, hence the -W. One session is not worth an archive of classes.
oldest: $(OLDEST_READY) ## run the smoke tests of Spark with the oldest PySpark that Headgate supports
	XDG_CACHE_HOME=/dev/null $(OLDEST)/bin/pytest -q -m spark_smoke -W ignore::ResourceWarning tests/spark

$(OLDEST_READY): pyproject.toml constraints.txt | $(BIN)/pip
	test -x $(OLDEST)/bin/pip || $(PYTHON) -m venv $(OLDEST)
	grep -v '^pyspark==' constraints.txt > $(OLDEST)/constraints.txt
	$(OLDEST_INSTALL) hatchling setuptools wheel
	$(OLDEST_INSTALL) --no-build-isolation --editable '.[spark]' pyspark==$(OLDEST_PYSPARK) \
		hypothesis pandas pytest pytest-timeout pytest-xdist
	touch $@

run: $(READY) ## run the demo
	$(BIN)/python -m headgate demo

check: lint types contract house ## lint, types, import contract, house rules

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

contract: $(READY)
	$(BIN)/lint-imports --no-cache --no-logo

house: $(READY)
	$(BIN)/pytest -q tests/test_house.py

# Sessions start without it, too, but slower.
archive: $(READY)
	-$(BIN)/python -m headgate.spark.class_archive

format: $(READY) ## put the code in shape
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

sim: $(READY) ## simulate SEEDS=n jobs with and without checkpoints (1000), or replay one: SCENARIO=recovery SEED=41
	$(BIN)/python -m tests.sim $(if $(SCENARIO),--scenario $(SCENARIO)) \
		$(if $(SEED),--seed $(SEED) --verbose,--seeds $(SEEDS) --processes $(CORES))

# Atheris would need a compiler and libFuzzer where it has no wheel; there, it is left out.
fuzz: SECONDS = 60
fuzz: $(READY) ## look for inputs that break the ports, guided by coverage: SECONDS=n (60)
	-$(PIP_INSTALL) --only-binary atheris atheris
	$(BIN)/python -m tests.adversaries.fuzz $(SECONDS)

faults: SEEDS = 1
faults: $(READY) ## every fault on Spark in every mode, SEEDS=n times (1), or one seed: SEED=41
	$(if $(SEED),HEADGATE_FAULT_SEED=$(SEED)) $(BIN)/pytest -q tests/faults \
		--fault-seeds $(if $(SEED),1,$(SEEDS))

soak: MINUTES = 15
soak: SEED = 1
soak: $(READY) ## a job on a cluster under faults for MINUTES=n (15): nothing may grow; SEED=n
	PYTHONPATH=$(CURDIR) $(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED) \
		--report soak.json --picture soak.svg

why: ROUNDS = 3
why: $(READY) ## every job with a planted cause alone, ROUNDS=n times (3); suggestions applied
	$(BIN)/pytest -q tests/spark/test_why.py --why-rounds $(ROUNDS)

mutants: JOBS = 2
mutants: $(READY) ## plant each bug of docs/mutants.md in a copy: a test must find it; ONLY=name, JOBS=n (2)
	$(BIN)/python -m tests.mutants --jobs $(JOBS) $(ONLY)

kafka: $(READY) ## test the Kafka sink against a real broker: BOOTSTRAP=host:port
	test -n "$(BOOTSTRAP)" || { echo "name the broker: make kafka BOOTSTRAP=host:port"; exit 2; }
	$(BIN)/pytest -q --kafka $(BOOTSTRAP) tests/connectors/kafka/test_sink.py \
		tests/connectors/kafka/test_exactly_once.py tests/connectors/kafka/test_topic_to_topic.py

bench: $(READY) ## run the benchmarks (about nine minutes), or ONLY=keyed-count
	set -e; for name in $(or $(ONLY),$(BENCHES)); do $(BIN)/python -m benchmarks $$name; done

picture: $(READY) tools ## draw the README's pictures, of terminal and page, from real runs
	$(BIN)/python docs/make_picture.py
	$(BIN)/python docs/make_screenshots.py

docs: $(READY) ## make the site of the documents in build/site; a dead link ends it
	$(BIN)/python docs/make_site.py
	@echo "look at it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

all: check test oldest ## everything that CI runs

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find benchmarks src tests -name __pycache__ -type d -prune -exec rm -rf {} +
