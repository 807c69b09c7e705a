# FlowQL's commands. `make quickstart` and `make test` are the two a new user needs; both set everything up first.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# The interpreter the environment is made with; any CPython from 3.11 on.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && echo $$p && break; done)
# Many tests wait for processes they started, so three at a time keep two processors busy. Tests of a file stay together.
WORKERS ?= 3
# Modules compiled once, not at each start of a process: tests and the quickstart start thousands.
unexport PYTHONDONTWRITEBYTECODE
# Of the longest tests some run each time, in turn: TURNS=all runs all of them, a number draws the same ones again.
export TURNS
# Quiet unless something is wrong: errors and warnings still show.
PIP := $(PY) -m pip --disable-pip-version-check --no-input --quiet
HASHED := --require-hashes --no-build-isolation
LOCK := $(VENV)/bin/pip-compile --generate-hashes --allow-unsafe --strip-extras \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate \
  --extra dev --extra quickstart --extra plots --extra registry --extra spark --extra connect --extra remote

.PHONY: help links setup quickstart test check format docs words clean distclean lock

help: ## show the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

setup: links $(READY) ## create .venv and install everything (quick when it is already there)
	@:

# Where git's core.symlinks is off, a clone has files in place of the two links.
links:
	@for link in flowql/compiler flowql/runtime; do test -d $$link || { \
	  git config core.symlinks true && rm -f $$link && git checkout -- $$link && test -d $$link \
	  && echo "== setup: $$link was a file and is a link now" \
	  || { echo "$$link cannot be made a link: use a file system that has symbolic links" >&2; exit 1; }; }; done

# Build tools first: the source distributions of the lock are built with them, without a second download. PySpark, the large
# one, is downloaded and built beside the others; pip keeps what it built for the next environment.
$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "FlowQL needs Python 3.11 or newer with venv; none was found (set PYTHON=...)" >&2; exit 1; }
	@echo "== setup: Python environment in $(VENV)"
	@test -x $(PY) && $(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@awk '/^[^ ]/ {take = /^(pip|setuptools|wheel|packaging)==/} take' requirements.lock > $(VENV)/build-tools.lock
	@$(PIP) install --no-compile $(HASHED) -r $(VENV)/build-tools.lock
	@awk '/^[^ ]/ {take = /^pyspark==/} take' requirements.lock > $(VENV)/pyspark.lock
	@awk '/^[^ ]/ {take = !/^pyspark==/} take' requirements.lock > $(VENV)/others.lock
	@echo "== setup: $$(grep -c == requirements.lock) packages of requirements.lock, hashes checked; PySpark is a download of 450 MB that is built here; two or three minutes the first time"
	@rm -rf $(VENV)/built
	@$(PIP) wheel $(HASHED) --no-deps -w $(VENV)/built -r $(VENV)/pyspark.lock & \
	  built=$$!; \
	  $(PIP) install --no-compile $(HASHED) -r $(VENV)/others.lock || { kill $$built; exit 1; }; \
	  wait $$built
	@$(PIP) install --no-compile --no-deps --no-index $(VENV)/built/*.whl && rm -r $(VENV)/built
	@PYTHONWARNINGS=ignore $(PIP) install --no-deps --no-build-isolation --editable .
	@echo "== setup: bytecode of the modules that commands load, so that they start quickly"
	@$(PY) -m compileall -q -j 0 flowql compiler runtime
	@$(PY) -c 'import flowql.cli.app as app, flowql.config.compile, flowql.query.session, flowql.server.at_rest; app.program()'
	@touch $(READY)
	@echo "== setup: done, $(VENV)/bin/flowql is ready"

quickstart: setup ## run the main example on real flights, from import to checked results
	@bash pipelines/quickstart/run.sh

test: setup ## run the tests
	@echo "== tests, in $(WORKERS) processes (a skip says what it needs)"
	@$(PY) -m pytest -v -rs --durations=5 -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

check: setup ## formatting, lint, types, import contracts, house rules
	@echo "== ruff format"
	@$(VENV)/bin/ruff format --check .
	@echo "== ruff check"
	@$(VENV)/bin/ruff check .
	@echo "== mypy"
	@$(VENV)/bin/mypy
	@echo "== import contracts"
	@$(VENV)/bin/lint-imports
	@echo "== house rules"
	@$(PY) -m pytest tests/tidy

format: setup ## rewrite the code as `make check` wants it
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

# A separate environment: FlowQL and its tests do not need mkdocs. With --quiet, mkdocs does not count warnings, so dead links would pass.
docs: setup ## build the documentation as a site with search into build/site; a dead link is an error
	@test -x build/docs/bin/mkdocs || { $(PY) -m venv build/docs && build/docs/bin/pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2'; }
	@build/docs/bin/mkdocs build --strict > build/docs/said 2>&1 || { cat build/docs/said; exit 1; }
	@echo "the first page: build/site/index.html"

words: setup ## count the words of the documentation; a part that is too long is an error
	@$(VENV)/bin/python docs/words.py

clean: ## remove caches, builds and the data of examples (keeps .venv)
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .flowql
	@find . -name .flowql -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	@echo "clean"

distclean: clean ## clean, and remove .venv
	@rm -rf $(VENV)

# Text about where packages came from is left out, so that the lock says the same on every machine.
lock: setup ## resolve requirements.lock again from pyproject.toml
	@echo "== lock: asking the package index for every release and hash; takes some minutes"
	@$(LOCK) --upgrade --output-file requirements.lock pyproject.toml
	@sed -i.old '/^#/d' requirements.lock && rm requirements.lock.old
	@! grep -nE '://|--index|--find-links|^ *(-e|/)' requirements.lock
	@echo "== lock: $$(grep -c == requirements.lock) packages"
