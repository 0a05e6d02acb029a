# minikv: one command each. `make` alone lists them. README.md has the same in plain commands.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
LAB_ARGS ?=
# Jupyter refuses to run as root (containers) unless told.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
# One thread per process: two test processes on two cores are then faster, and floating point repeats.
TEST_ENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(TEST_ENV) $(PY) -m pytest -n 2 --dist loadfile
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=300 --nbval-sanitize-with tests/nbval.cfg

# The oldest supported transformers, with a huggingface-hub that it accepts, in a folder that shadows the installed one.
OLDEST := build/oldest
OLDEST_TRANSFORMERS := transformers==5.17.0 huggingface-hub==1.33.0
OLDEST_TESTS := test_families.py test_oracle.py test_grid.py

.DEFAULT_GOAL := help
.PHONY: help setup lab demo test quick test-more kit nbgrader lint notebooks lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: ## environment, packages and weights in .venv; done steps are skipped
	@$(PYTHON) tools/bootstrap.py --venv $(VENV)

lab: setup ## set up, then open the course in JupyterLab, in your own copy my_course/
	@$(PY) -m minikv course start --quiet
	$(PY) -m jupyterlab --ServerApp.root_dir="$(CURDIR)/my_course" --LabApp.default_url=/lab/tree/notebooks/00_preflight.ipynb $(AS_ROOT) $(LAB_ARGS)

demo: setup ## set up, then tell the incident in the terminal, with a real model
	@$(TEST_ENV) $(PY) -m minikv incident --scale article

test: setup ## set up, then all tests and notebooks
	$(PYTEST) -m "not more" $(NBVAL) tests notebooks exercises solutions

quick: setup ## the quick tests: under three minutes on two idle cores
	$(PYTEST) -m "not more and not slow and not browser" tests

test-more: setup ## the long tests that `make test` leaves out, and the families on the oldest transformers
	$(PYTEST) -m more tests
	@$(PY) -m pip install -q --no-deps --upgrade --target $(OLDEST) $(OLDEST_TRANSFORMERS)
	PYTHONPATH=$(OLDEST) $(PYTEST) -m "not more and not model" $(addprefix tests/engine/,$(OLDEST_TESTS))

kit: setup ## for teachers: the course in one folder for a room without a network; KIT=folder outside of here
	@$(PY) -m minikv kit $(if $(KIT),"$(KIT)",../minikv-kit)

nbgrader: setup ## for teachers: assignments for nbgrader; CLASS=folder
	@$(PY) tools/export_nbgrader.py $(if $(CLASS),"$(CLASS)",../class)

lint: setup ## ruff, and mypy (strict) on the package
	$(PY) -m ruff check .
	$(PY) -m mypy

notebooks: setup ## for authors: rebuild the notebooks from their sources and run them
	$(TEST_ENV) $(PY) tools/build_course.py --execute

lock: setup ## for authors: write constraints.txt from .venv
	@$(PY) tools/pins.py lock

clean: ## remove caches and test artefacts; keeps .venv, my_course/ with your parts, and the converted weights
	rm -rf artifacts build .ci-cache .venv-ci* *.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . \( -path './.venv*' -o -path ./my_course \) -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -exec rm -rf {} +
