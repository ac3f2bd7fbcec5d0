# Every target sets up what it needs on a fresh clone and skips what is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
TRACKIO := trackio==0.43.0 gradio_client==2.7.2 brotli==1.2.1 orjson==3.13.0 python-multipart==0.0.34
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes, which should not compile it all again
PIP_FLAGS := --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test slow recipe drills fuzz check docs docs-check format bench libraries clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 20

setup: $(VENV)/.dev  ## everything for development into .venv

demo: $(VENV)/.core  ## train, evaluate, report on built-in data, with the core alone installed
	$(BIN)/nearfar train $(DEMO)

test: $(VENV)/.dev  ## the tests of the code, doctests included
	$(BIN)/pytest -q -n auto --dist worksteal

slow: $(VENV)/.dev  ## all tests but the drills: the long ones and those of the docs too
	$(BIN)/pytest -q -n auto --dist worksteal -m "not drill"

recipe: $(VENV)/.dev  ## a recipe run again beside what it reached, NAME=glyphs-simclr
	$(BIN)/nearfar recipes $(or $(NAME),glyphs-simclr) --rerun

drills: $(VENV)/.dev  ## kills, full disks, dying processes and damaged files in their long form
	$(BIN)/pytest -q -m drill tests

fuzz: $(VENV)/.fuzz  ## atheris on everything that reads a file, FUZZ_SECONDS for each target (60)
	$(BIN)/python -m tests.fuzz.explore --seconds $(or $(FUZZ_SECONDS),60)

check: $(VENV)/.dev  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev  ## the docs as a site that needs no network: open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "docs: site/index.html"

docs-check: $(VENV)/.dev docs  ## the site and its links; code, commands and numbers on pages
	$(BIN)/pytest -q -n auto --dist worksteal -m "docs and not slow" tests

format: $(VENV)/.dev  ## put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH)/.done  ## losses, views, k-NN, log-mels and shards side by side with peers, into benchmarks/results
	$(BENCH)/bin/python benchmarks/losses.py
	$(BENCH)/bin/python benchmarks/views.py
	$(BENCH)/bin/python benchmarks/evaluate.py
	$(BENCH)/bin/python benchmarks/audio.py
	$(BENCH)/bin/python benchmarks/shards.py

libraries: $(VENV)/.libraries  ## objects of other libraries, really: pandas, datasets, kornia, wandb, ... (0.6 GB)
	$(BIN)/pytest -q -n auto tests/data/test_real_libraries.py tests/modalities/image/test_custom_views.py \
	  tests/training/test_attachments.py

clean:  ## remove the environments
	rm -rf $(VENV) $(BENCH)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing nearfar and what it needs into $(VENV) (a few minutes the first time)"
	@$(BIN)/pip install $(PIP_FLAGS) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing nearfar with all extras and tools into $(VENV) (a few minutes the first time)"
	@$(BIN)/pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.libraries: $(VENV)/.dev
	@$(BIN)/pip install $(PIP_FLAGS) -e '.[dev,libraries]'
	@$(BIN)/pip install $(PIP_FLAGS) --no-deps $(TRACKIO)  # it asks for an older Pillow, and works with this one
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	@$(BIN)/pip install $(PIP_FLAGS) -e '.[fuzz]'
	@touch $@

$(BENCH)/.done: pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	@echo "installing nearfar and its peers into $(BENCH)"
	@$(BENCH)/bin/pip install $(PIP_FLAGS) -e . -r benchmarks/requirements.txt
	@touch $@
