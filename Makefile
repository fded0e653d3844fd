# On a fresh machine with python3 (3.11 or newer) and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lab lint docs gate bench wheel clean

help: ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

# A stamp per set of packages: nothing is installed again while pyproject.toml stays.
$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --compile --disable-pip-version-check --editable .
	touch $@

# Dependency groups need pip 25.1; the pip that comes with Python may be older.
$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --compile --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --compile --disable-pip-version-check --group dev
	touch $@

demo: $(VENV)/.installed ## predict one deployment: Llama-3.3-70B with EAGLE on four H100
	$(BIN)/specsim predict examples/llama-3.3-70b-4xh100.yaml

test: $(VENV)/.dev ## run the tests, a few minutes
	$(BIN)/python -m pytest -m 'not slow' -n auto

test-all: $(VENV)/.dev ## run the slow tests too, as CI does
	$(BIN)/python -m pytest -n auto

lab: $(VENV)/.dev ## measure a real vLLM on this CPU, calibrate on half, predict the rest
	$(BIN)/python tools/lab/lab.py

lint: $(VENV)/.dev ## format, lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy app
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.dev ## write the pages made from code, and all pictures, again
	$(BIN)/python tools/make_cli_docs.py
	$(BIN)/python tools/make_picture.py
	$(BIN)/python tools/make_validation.py

# Refused unless CHANGELOG.md says 'numbers change' with the error before and after.
gate: $(VENV)/.dev ## accept the present accuracy as what no change may fall behind
	$(BIN)/python tools/make_validation.py --write-gate

bench: $(VENV)/.dev ## time a prediction and a grid
	$(BIN)/python -m pytest benchmarks -o testpaths=benchmarks --benchmark-only

wheel: $(VENV)/.dev ## build dist/*.whl and the source distribution
	$(BIN)/python -m build --outdir dist

clean: ## remove what the targets above made
	rm -rf $(VENV) .lab-venv dist build
