# Every target does its own set-up in .venv; nothing needs to be installed by hand but python3 and make.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# One process of tests per core; `make test WORKERS=` runs them in one.
WORKERS ?= -n auto --dist worksteal

.PHONY: demo test test-slow test-all browser lint types bench clean

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/ready-%: pyproject.toml $(VENV)/ready
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

demo: $(VENV)/ready-examples
	$(PY) examples/digits_mlp.py

lint: $(VENV)/ready-test
	$(PY) -m ruff check relaxvm tests bench examples
	$(PY) -m ruff format --check relaxvm tests bench examples

types: $(VENV)/ready-test
	$(PY) -m mypy

test: lint types
	$(PY) -m pytest $(WORKERS) -m "not slow"

test-slow: $(VENV)/ready-test
	$(PY) -m pytest $(WORKERS) -m slow

test-all: test test-slow

# What tests of the HTML page look at it with, on Debian and its kin; without it they are skipped.
browser:
	apt-get install --yes --no-install-recommends chromium chromium-driver

bench: $(VENV)/ready-bench
	$(PY) -m pytest bench -p no:cacheprovider -o testpaths=bench --benchmark-only --benchmark-columns=median,iqr,rounds

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
