# Every command builds .venv from nothing first, with the versions that constraints.txt was tested
# with. PYTHON=/path/to/python3.12 chooses the interpreter.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo up down docs test test-slow test-alone test-architectures bench bench-quick chaos lint format constraints clean

# Containers often set it. Each of the hundreds of processes that runs and tests start would compile
# the package again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# What is linted: files that people try beside it, as the README has it, are their own.
CODE := benchmarks blocks docs examples flows partwise tasks tests
PYTHON ?=
PORT ?=
# Of `make chaos`: its chance, and how long it goes on.
SEED ?= 7
MINUTES ?= 5
# How many processes share the tests: on two cores a third of their time goes by in waiting for disks,
# servers and other processes. Each collects all tests, and has servers and a cluster of its own, so
# that four of them take no less than three.
JOBS ?=

# Which rows of `make bench`, if not all.
ROWS ?=

# Which tests, by their marks, in place of those that a command names.
MARKS ?=

# Of what tests draw at random or count off: a sample, or with 1 all of it.
THOROUGH ?=

# Tests kill processes, not machines, so that nothing depends on what a disk has done: where Debian's
# `eatmydata` is installed, their files are not flushed. `make chaos` and `make test-alone` flush all.
PYTEST := $(shell command -v eatmydata) $(BIN)/python -m pytest

# uv installs within a minute what takes pip three, from the places that pip is set up with: it reads
# no settings of pip's. What it cannot install, pip may.
define INSTALL
import ast, os, pathlib, shutil, subprocess, sys
PIP = [sys.executable, "-m", "pip"]
NAMES = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS",
         "constraint": "UV_CONSTRAINT", "trusted-host": "UV_INSECURE_HOST", "cert": "SSL_CERT_FILE"}
lines = subprocess.check_output([*PIP, "config", "list"], text=True).splitlines()
lines.sort(key=lambda line: line.startswith(":env:"))  # they win
found = {key.rpartition(".")[2]: ast.literal_eval(text) for key, _, text in (line.partition("=") for line in lines)}
places = {NAMES[key]: " ".join(text.split()) for key, text in found.items() if key in NAMES}
if "UV_FIND_LINKS" in places:
    places["UV_FIND_LINKS"] = places["UV_FIND_LINKS"].replace(" ", ",")
constraints, *what = sys.argv[1:]
wanted = ["install", "-q", "-c", constraints]
pip = [*PIP, *wanted, "-q", "--disable-pip-version-check"]  # twice quiet: of each place without a package it warns
subprocess.check_call([*pip, "uv"])
uv = [sys.executable, "-m", "uv", "pip", *wanted, "--python", sys.executable, "--index-strategy", "unsafe-best-match"]
if not shutil.which("nvidia-smi"):
    # XGBoost's wheel brings what exchanges data between GPUs: 470 MB, a third of all.
    without = pathlib.Path(sys.prefix, "without.txt")
    without.write_text("nvidia-nccl-cu12; sys_platform == 'never'\n")
    uv += ["--override", str(without)]
uv += ["--no-index"] * (found.get("no-index", "") in ("1", "true", "yes", "on"))
if subprocess.call([*uv, *what], env=places | os.environ):
    subprocess.check_call([*pip, *what])
endef
export INSTALL

# A failed import of LightGBM is nearly always the one library that its wheel does not bring.
CHECK := $(BIN)/python -c 'import lightgbm' || { \
	echo 'LightGBM needs the GNU OpenMP library: apt-get install libgomp1' >&2; exit 1; }

help:
	@echo 'make demo         train 100 models on a made-up retail table, and use them'
	@echo 'make up           start a Prefect server and a worker here, and deploy prefect.yaml (PORT=4200)'
	@echo 'make down         end what make up started'
	@echo 'make docs         build the documentation as a site: site/index.html'
	@echo 'make test         lint, then the tests of every module'
	@echo 'make test-slow    what needs real servers, a browser, many kinds of models or much data'
	@echo 'make test-alone   what measures memory or time, one after another'
	@echo 'make test-architectures  export and prove tiny models of 62 architectures, 281 pairs'
	@echo 'make bench        measure partwise and others by turns, for an hour: benchmarks/RESULTS.md'
	@echo 'make bench-quick  the same with less of all, in minutes: benchmarks/RESULTS-quick.md'
	@echo 'make chaos        break things at random for MINUTES=5 with SEED=7, and print what was lost'
	@echo 'make lint         ruff, import contracts, mypy'
	@echo 'make format       let ruff rewrite the code'
	@echo 'make constraints  write constraints.txt again from what pip finds today'
	@echo 'make clean        remove .venv, caches and what the demo and make up wrote'

demo: $(VENV)/base.stamp
	@$(BIN)/partwise demo

up: $(VENV)/base.stamp
	@$(BIN)/partwise up $(if $(PORT),--port $(PORT))

down: $(VENV)/base.stamp
	@$(BIN)/partwise down

docs: $(VENV)/docs.stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'the site is built: open site/index.html'

test: lint
	@$(PYTEST) -n $(or $(JOBS),3) -m '$(or $(MARKS),not slow)'

test-slow: $(VENV)/dev.stamp
	@PARTWISE_THOROUGH=$(THOROUGH) $(PYTEST) -n $(or $(JOBS),3) -m '$(or $(MARKS),slow and not alone)' -o timeout=900 -o faulthandler_timeout=2000 \
		--durations=40 --durations-min=10

test-alone: $(VENV)/dev.stamp
	@$(BIN)/python -m pytest -s -m '$(or $(MARKS),slow and alone)' $(if $(JOBS),-n $(JOBS) --dist worksteal) -o timeout=900 -o faulthandler_timeout=1200 \
		$$(grep -rl --include='test_*.py' 'mark\.alone' tests)

test-architectures: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.transformers.architecture_proof

bench: $(VENV)/dev.stamp $(VENV)-peers/stamp $(VENV)-served/stamp
	@$(BIN)/python -m benchmarks.bench $(if $(ROWS),--only $(ROWS))

bench-quick: $(VENV)/dev.stamp $(VENV)-peers/stamp $(VENV)-served/stamp
	@$(BIN)/python -m benchmarks.bench --quick $(if $(ROWS),--only $(ROWS))

chaos: $(VENV)/dev.stamp
	@PARTWISE_CHAOS_SEED=$(SEED) PARTWISE_CHAOS_MINUTES=$(MINUTES) \
		$(BIN)/python -m pytest -m slow -o timeout=1800 -o faulthandler_timeout=2400 tests/chaos

lint: $(VENV)/dev.stamp
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --check --quiet $(CODE)
	@$(BIN)/lint-imports --no-cache > $(VENV)/contracts.log || { cat $(VENV)/contracts.log; exit 1; }
	@$(BIN)/mypy --no-error-summary --num-workers auto
	@echo 'lint: ruff, import contracts and mypy are content'

format: $(VENV)/dev.stamp
	@$(BIN)/ruff check --fix --quiet $(CODE)
	@$(BIN)/ruff format $(CODE)

# Three stamps on one environment: the demo and the site need less than half of what the tests need.
$(VENV)/base.stamp: pyproject.toml constraints.txt | $(VENV)/python.stamp
	@echo 'installing partwise into $(VENV) (half a minute the first time)'
	@$(BIN)/python -c "$$INSTALL" constraints.txt -e .
	@$(CHECK)
	@touch $@

$(VENV)/docs.stamp: pyproject.toml constraints.txt | $(VENV)/python.stamp
	@echo 'installing partwise and what builds its site into $(VENV)'
	@$(BIN)/python -c "$$INSTALL" constraints.txt -e '.[docs]'
	@touch $(VENV)/base.stamp $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/python.stamp
	@echo 'installing partwise and its test tools into $(VENV) (about a minute the first time)'
	@$(BIN)/python -c "$$INSTALL" constraints.txt -e '.[cuda,torch,postgresql,sqlite,delta,iceberg,huggingface,transformers,docs,dev]'
	@$(CHECK)
	@touch $(VENV)/base.stamp $(VENV)/docs.stamp $@

# Those that partwise is measured beside: they and we would hold back each other's versions.
PEERS := dask[dataframe] distributed joblib lightgbm mlforecast optuna polars pyspark ray[data,tune] statsforecast
$(VENV)-peers/stamp: benchmarks/peers.txt | $(VENV)/python.stamp
	@echo 'installing what partwise is measured beside into $(VENV)-peers (half a minute the first time)'
	@$(BIN)/python -m venv --clear $(VENV)-peers
	@$(VENV)-peers/bin/python -c "$$INSTALL" benchmarks/peers.txt $(foreach peer,$(PEERS),'$(peer)')
	@touch $@

# Their servers hold back versions of nearly all that is above.
$(VENV)-served/stamp: benchmarks/served/peers.txt | $(VENV)/python.stamp
	@echo 'installing the servers that partwise serve is measured beside into $(VENV)-served (half a minute the first time)'
	@$(BIN)/python -m venv --clear $(VENV)-served
	@$(VENV)-served/bin/python -c "$$INSTALL" benchmarks/served/peers.txt lightgbm mlflow mlserver mlserver-lightgbm
	@touch $@

$(VENV)/python.stamp:
	@for python in $(or $(PYTHON),python3 python3.11 python3.12 python3.13 python3.14); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			"$$python" -m venv --clear $(VENV) && touch $@ && exit 0; exit 1; \
		fi; \
	done; \
	echo 'partwise needs Python 3.11 or newer: install it, or name one with PYTHON=...' >&2; exit 1

# What a release index without local builds gives to the oldest Python that we support, since newer
# releases of many packages drop it. Held back: torch, to what the tests ran with.
HELD := torch==2.13.0
define LIST_VERSIONS
import json, sys
found = [item["metadata"] for item in json.load(sys.stdin)["install"]]
pins = [f"{item['name']}=={item['version']}" for item in found if item["name"] != "partwise"]
print(*sorted(pins, key=str.lower), sep="\n")
endef
export LIST_VERSIONS
constraints: $(VENV)/python.stamp
	@PIP_CONFIG_FILE=/dev/null PIP_EXTRA_INDEX_URL= PIP_FIND_LINKS= $(BIN)/python -m pip install \
		-q -q --disable-pip-version-check --dry-run --ignore-installed --report $(VENV)/report.json \
		'.[cuda,torch,postgresql,sqlite,delta,iceberg,huggingface,transformers,docs,dev]' $(HELD)
	@$(BIN)/python -c "$$LIST_VERSIONS" < $(VENV)/report.json > constraints.txt

clean:
	@rm -rf $(VENV) $(VENV)-peers $(VENV)-served demo dist site .partwise .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
