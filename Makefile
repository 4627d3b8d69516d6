# Everything from a fresh clone: each target makes .venv first where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow check bench docs clean

demo: $(INSTALLED)
	$(BIN)/pamc demo

# Two workers on two cores, one thread each: the suite is many small fits.
test: $(INSTALLED) check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" --doctest-modules src tests \
		--cov=pamc --cov-branch --cov-report=term --cov-report=json:.coverage.json -q
	$(BIN)/python tests/check_coverage.py .coverage.json

test-slow: $(INSTALLED)
	$(BIN)/python -m pip install -q -c constraints-dev.txt -e ".[docs]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m slow tests -q

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
