# One command each. Every target does its own set-up in .venv; the machine needs only Python and make. Where npm is
# installed too, the tests also run what is written in JavaScript, and the tools of other projects that judge us.
PYTHON ?= python3
BIN := .venv/bin
# Asked before anything is made: a .venv of an older Python would be taken up by the next try as well.
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %d.%d, and 3.11 is \
needed: name a newer one, as in make $(or $(firstword $(MAKECMDGOALS)),up) PYTHON=python3.12" % sys.version_info[:2])'
NODE := $(if $(shell command -v npm),tests/node/node_modules/.ready)

.PHONY: up test lint bench clean

up: .venv/.running
	@$(BIN)/amnesia up

test: .venv/.ready $(NODE)
	@$(BIN)/python -m pytest $(ARGS)

lint: .venv/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: .venv/.ready
	@$(BIN)/python -m tests.bench $(ARGS)

clean:
	rm -rf .venv tests/node/node_modules .mypy_cache .pytest_cache .ruff_cache

# What runs needs a sixth of what develops: nobody waits for frameworks and test tools to see the first note.
.venv/.running: pyproject.toml
	@$(NEW_ENOUGH)
	@echo 'setting up .venv, once; this takes half a minute'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mcp]'
	@touch $@

.venv/.ready: pyproject.toml
	@$(NEW_ENOUGH)
	@echo 'setting up .venv for development, once; this takes two minutes'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ .venv/.running

tests/node/node_modules/.ready: tests/node/package.json
	@echo 'setting up tests/node, once; this takes half a minute'
	@cd tests/node && npm install --loglevel=error >/dev/null
	@touch $@
