# `make demo` and `make test` need Python ≥ 3.11 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_MODEL := tests/models/vit.ts13.onnx

.PHONY: demo test lint types tests clean

demo: $(VENV)/installed
	@mkdir -p build/demo
	$(BIN)/gehost compile $(DEMO_MODEL) -o build/demo/fused.onnx --vendors vendors --dump build/demo/dumps --report build/demo/report.json --verify

test: lint types tests

lint: $(VENV)/installed
	$(BIN)/ruff check .

types: $(VENV)/installed
	$(BIN)/basedpyright --level error

tests: $(VENV)/installed
	$(BIN)/pytest -n auto

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'gehost needs Python 3.11 or newer')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist
