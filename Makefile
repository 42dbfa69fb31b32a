# Everything a newcomer needs: `make demo` and `make test` work on a fresh machine, each alone.
PYTHON ?= python3
WORKERS ?= 2
MINUTES ?= 10
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CORE := $(VENV)/.core
# Tests and demo use small tensors: more threads than one only fight for the cores.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help setup lint native-test cross-test clang-test test test-deep soak demo bench docs wheel clean

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## prepare .venv with everything that tests need; skipped when up to date

# Files alone: the folder of the kernels' tests changes with every build in it.
NATIVE := setup.py $(wildcard src/regrow/csrc/*.*)
SOURCES := Makefile pyproject.toml constraints.txt $(NATIVE)
# Python compiles what it imports: all of torch at once would take longer than the rest.
INSTALL = $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
# The packages of one extra, without building regrow again.
extra = $$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['$(1)'], sep='\n')")

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(SOURCES) | $(BIN)/python
	$(INSTALL) -e ".[test,integrations,timm,tensorboard,ray,onnx]"
	@touch $(CORE) $@

# What regrow itself needs: enough for the demo, installed in a third of the time.
$(CORE): $(SOURCES) | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

lint: setup  ## style and type checks
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

native-test:  ## the kernels' own test program, also under address, undefined-behaviour and thread sanitizers
	$(MAKE) --no-print-directory -j2 -C src/regrow/csrc/tests run

cross-test:  ## the same for 64-bit ARM under an emulator (Debian: g++-aarch64-linux-gnu, qemu-user)
	$(MAKE) --no-print-directory -j2 -C src/regrow/csrc/tests cross

clang-test:  ## the same for this machine, built by clang
	$(MAKE) --no-print-directory -j2 -C src/regrow/csrc/tests CXX=clang++ BUILD=build/clang plain

test: lint native-test  ## style and type checks and all fast tests
	$(PYTEST) -m "not deep"

test-deep: lint native-test  ## everything, long sweeps included
	REGROW_DEEP=1 $(PYTEST)

soak: setup  ## search for faults for MINUTES=10: kills, damage, hostile files; counts add up in runs/soak.json
	$(ONE_THREAD) $(BIN)/python -m tests.soak --minutes $(MINUTES)

demo: $(CORE)  ## dense and sparse side by side on handwritten digits: table and report
	$(BIN)/regrow demo --out runs/demo

bench: $(CORE)  ## what masking and topology updates cost
	$(BIN)/python benchmarks/overhead.py

docs: $(CORE)  ## build the documentation site into site/
	@echo "$(call extra,docs)" | $(INSTALL) -r /dev/stdin
	$(BIN)/python -m docs.tools.build
	@echo "the site is in site/: open site/index.html"

wheel: $(BIN)/python  ## build sdist and wheel into dist/ and try the wheel in an environment of its own
	@echo "$(call extra,release)" | $(INSTALL) -r /dev/stdin
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/wheel

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist src/*.egg-info src/regrow/csrc/tests/build
