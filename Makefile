# `make demo` and `make test` need Python ≥ 3.11 and make; everything else goes into .venv.
# `make compiled` needs a C compiler, and makes machine code of what each rewrite runs through, as `pip install .` does (compiled.py);
# `make interpreted` takes it back.
# `make bench` measures machine code, which it takes back; the peers are in an environment of its own. BENCH_ARGS="--quick" and more:
# tests/benchmarks/README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := build/bench-venv
DEMO_MODEL := tests/models/vit.ts13.onnx

.PHONY: demo test lint types tests backend bench gate fuzz fuzz-files compiled interpreted clean

demo: $(VENV)/installed
	@mkdir -p build/demo
	$(BIN)/gehost compile $(DEMO_MODEL) -o build/demo/fused.onnx --vendors vendors --dump build/demo/dumps --report build/demo/report.html --verify

test: lint types tests

lint: $(VENV)/installed
	$(BIN)/ruff check .

types: $(VENV)/installed
	$(BIN)/basedpyright --level error

tests: $(VENV)/installed
	$(BIN)/pytest -n auto

backend: $(VENV)/installed
	$(BIN)/python -m tests.backend

gate: $(VENV)/installed
	$(BIN)/python -m tests.gate $(BASE)

fuzz: $(VENV)/installed
	$(BIN)/python -m tests.fuzz --graphs 20400 $(FUZZ_ARGS)

fuzz-files: $(VENV)/installed
	$(BIN)/python -m tests.fuzz.files --files 50000 $(FUZZ_ARGS)

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'gehost needs Python 3.11 or newer')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

bench: $(BENCH)/installed compiled
	$(BENCH)/bin/python -m tests.benchmarks --json build/bench.json $(BENCH_ARGS); code=$$?; $(MAKE) interpreted; exit $$code

$(BENCH)/installed: pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

compiled: interpreted $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling 'mypy[mypyc]>=1.18' 'setuptools>=77'
	$(BIN)/python compiled.py

interpreted:
	find gehost . -maxdepth 1 -name '*__mypyc.*' -delete
	find gehost -name '*.so' -delete

clean: interpreted
	rm -rf $(VENV) build dist
