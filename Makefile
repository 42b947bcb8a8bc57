# Every target makes and reuses .venv by itself; all it needs is Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
# small operations in many processes: one thread each, or they wait for each other
ONE_THREAD := OMP_NUM_THREADS=1
# a file's tests in one process: what they share is made once, and processes seldom compile the same kernel at one time
WORKERS := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-all lint types docs bench fuzz faults audit coverage dist wheel clean

demo: .venv/.installed  ## train on handwritten digits: accuracy, comparison, run folder, picture
	$(BIN)/walksum train

test: .venv/.installed-dev  ## the tests, without the slowest
	$(ONE_THREAD) $(BIN)/python -m pytest $(WORKERS) -m "not slow"

test-all: .venv/.installed-dev  ## all tests: those of make test, and the slowest
	$(ONE_THREAD) $(BIN)/python -m pytest $(WORKERS)

lint: .venv/.installed-dev  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed-dev  ## mypy
	$(BIN)/mypy

# without --quiet, which would also silence the warnings that --strict counts
docs: .venv/.installed-dev  ## the pages under site/; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: .venv/.installed-dev  ## wheel and source archive under dist/
	$(BIN)/python -m build --outdir dist

wheel: dist  ## the wheel in an empty environment, away from the clone
	bash scripts/try_wheel.sh dist/*.whl

bench: .venv/.installed-dev  ## CPU benchmark against the paper's algorithm and peers
	$(ONE_THREAD) $(BIN)/python -m benchmarks.cpu

fuzz: .venv/.installed-dev  ## 100,000 random systems and 2,000 gradients; goes on where it was stopped
	$(ONE_THREAD) $(BIN)/python tests/fuzz/run.py
	$(ONE_THREAD) $(BIN)/python tests/fuzz/gradients.py
	$(ONE_THREAD) $(BIN)/python tests/fuzz/gradients.py --seed 1000 --out results/trust/gradients_second.json

faults: .venv/.installed-dev  ## 200 kills at random moments of train, predict, report and a sweep
	$(ONE_THREAD) $(BIN)/python tests/faults/kills.py --out results/trust/faults.json

audit: .venv/.installed-dev  ## known vulnerabilities of the tested set; fails where a package cannot be asked about
	$(BIN)/pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --no-deps --disable-pip -r constraints.txt -f json -o results/trust/audit.json
	$(BIN)/pip-audit --strict --no-deps --disable-pip -r constraints.txt

coverage: .venv/.installed-dev  ## line coverage of src/walksum, part by part; at least 95 %
	bash scripts/coverage.sh

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

clean:  ## remove .venv, site, build and dist
	rm -rf .venv site build dist

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "walksum needs Python 3.11 or newer; run: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
