# One command each. Every target does its own set-up in .venv; the machine needs only Python and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: up test lint bench clean

up: .venv/.ready
	@$(BIN)/amnesia up

test: .venv/.ready
	@$(BIN)/python -m pytest $(ARGS)

lint: .venv/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: .venv/.ready
	@$(BIN)/python -m tests.bench $(ARGS)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache

.venv/.ready: pyproject.toml
	@echo 'setting up .venv, once; this takes a minute'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
