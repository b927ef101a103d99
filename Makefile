# Everything on a fresh machine: `make quickstart` trains, `make test` tests, `make docs` builds the
# site of the documents, `make reference` writes docs/reference.md after a change to an option.
#
#   PYTHON=python3.12       the Python that .venv is made from (3.11 or later)
#   TORCH_INDEX=URL         where torch comes from, for example
#                           https://download.pytorch.org/whl/cpu; a torch in range that .venv can
#                           already import is kept
#   WORKERS=4               test processes; each computes on one thread
#   MUTANTS=200 SEED=0      how many mutants `make mutants` draws; 0 is all of them

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto
MUTANTS ?= 200
SEED ?= 0
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
TORCH := $(shell grep '^torch==' constraints.txt)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 \
  --dist worksteal

.PHONY: .venv quickstart test test-all mutants lint reference docs clean

.venv: $(VENV)/.runtime

quickstart: $(VENV)/.runtime
	$(BIN)/turnwise train frozen-lake

test: $(VENV)/.test
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.test
	$(PYTEST) --durations=40 --disable-warnings

mutants: $(VENV)/.test
	$(BIN)/python benchmarks/mutants.py --mutants $(MUTANTS) --seed $(SEED)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

reference: $(VENV)/.runtime
	$(BIN)/python .ci/make_reference.py

docs: $(VENV)/.docs
	$(BIN)/python .ci/make_reference.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .mutants .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Constraints name one torch for those who have none; they must not replace the one that is there.
$(VENV)/.runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "turnwise needs Python 3.11 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Installing into $(VENV); the first time this takes minutes, torch is large."
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python .ci/torch_in_range.py || $(PIP) install --quiet \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --constraint constraints.txt $(TORCH)
	grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt
	$(PIP) install --quiet --constraint $(VENV)/constraints.txt --editable .
	touch $@

$(VENV)/.test: $(VENV)/.runtime
	$(PIP) install --quiet --constraint $(VENV)/constraints.txt --editable '.[test]'
	touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) install --quiet --constraint $(VENV)/constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.runtime
	$(PIP) install --quiet --constraint $(VENV)/constraints.txt --editable '.[docs]'
	touch $@
