# Everything from a fresh clone: each target makes .venv first where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Two workers on two cores, one thread each: the suite is many small fits. COVER=1 records coverage for `make cover`.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q
COVERAGE := $(if $(COVER),--cov=pamc --cov-branch --cov-append --cov-report=)

.PHONY: demo test test-slow claims cover check bench docs clean

demo: $(INSTALLED)
	$(BIN)/pamc demo

test: $(INSTALLED) check
	$(PYTEST) $(COVERAGE) -m "not slow and not claims" --doctest-modules src tests

# Complete fits, several processes, killed runs, the browser, the documentation, and further variants of fast tests.
test-slow: $(INSTALLED)
	$(BIN)/python -m pip install -q -c constraints-dev.txt -e ".[docs]"
	$(PYTEST) $(COVERAGE) --dist loadgroup -m slow tests

# The stored measurements, and the pages that are rendered from them.
claims: $(INSTALLED)
	$(PYTEST) $(COVERAGE) -m "claims and not slow" tests

# Check the coverage of the targets above that ran with COVER=1.
cover: $(INSTALLED)
	$(BIN)/python -m coverage json -q --include='src/pamc/*' -o .coverage.json
	$(BIN)/python tests/check_coverage.py .coverage.json

check: $(INSTALLED)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/pamc bench all --out benchmarks/results

docs: $(INSTALLED)
	$(BIN)/python -m pip install -q -c constraints-dev.txt -e ".[docs]"
	$(BIN)/python -m sphinx -W -b html docs docs/_build/html

$(INSTALLED): pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints-dev.txt -e ".[dev]"
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
