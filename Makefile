# Needs Python >= 3.11 and make; everything else goes into .venv. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_MODEL := tests/models/bert.ts17.onnx
PRODUCTS := linalg hlo sharding zoo
# make test PART=vendors: tests/vendors, plugins/vendors/tests or tests/test_vendors.py, else -k
PATHS = $(if $(PART),$(or $(wildcard tests/$(PART) plugins/$(PART)/tests tests/test_$(PART).py),-k $(PART)))
PIP := -m pip install --quiet --disable-pip-version-check

unexport PYTHONDONTWRITEBYTECODE  # tests start many processes, which would compile gehost again
.PHONY: demo test lint types tests install clean help

demo: build/demo/installed  ## optimize a small BERT of this repository, in an environment of its own
	build/demo/venv/bin/gehost optimize $(DEMO_MODEL) -o build/demo/bert.opt.onnx --budget 20s --report build/demo/report.html

build/demo/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'gehost needs Python 3.11 or newer')"
	$(PYTHON) -m venv build/demo/venv
	build/demo/venv/bin/python $(PIP) --editable '.[verify]'
	@touch $@

# basedpyright has one process: beside the tests it costs half of its time
test: $(VENV)/installed  ## ruff, pyright, pytest; PART=pattern: the tests of one part
	$(if $(PART),$(MAKE) tests,$(MAKE) --jobs=3 lint types tests)

lint: $(VENV)/installed  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --extend-exclude '*.md' .

types: $(VENV)/installed  ## pyright
	$(BIN)/basedpyright --level error

tests: $(VENV)/installed
	$(BIN)/pytest -n auto $(PATHS)

install:  ## gehost and all products into the environment of $(PYTHON)
	$(PYTHON) $(PIP) '.[verify]' $(PRODUCTS:%=./plugins/%)

$(VENV)/installed: pyproject.toml $(PRODUCTS:%=plugins/%/pyproject.toml)
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'gehost needs Python 3.11 or newer')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --editable '.[dev]' $(PRODUCTS:%=--editable 'plugins/%[test]')
	@touch $@

clean: interpreted
	rm -rf $(VENV) build dist

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

include tools/Makefile
