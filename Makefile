# `make demo` and `make test` need Python >= 3.11 and make; everything else goes into .venv.
# `make compiled` compiles the hot modules in place (hatch_build.py; needs a C compiler); `make interpreted` undoes it.
# `make test-wheel` runs the tests on a wheel with machine code, in an empty environment.
# `make bench` measures machine code and undoes it; the peers have their own environment. BENCH_ARGS="--quick" and more:
# tools/benchmarks/README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := build/bench-venv
WHEEL := build/wheel
DOCS := build/docs-venv
JAX := build/jax-venv
IREE := build/iree-venv
MODELS := build/models-venv
DEMO_MODEL := tests/models/vit.ts13.onnx

# the tests start many processes, which would compile gehost's modules again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types tests docs backend opsets sizes shapes runtime runtime-peers runtime-latency tune-check bench bench-models gate fuzz fuzz-files shard hlo-texts fuzz-hlo linalg-fuzz linalg-corpus kernels-fuzz compiled interpreted wheel test-wheel clean

demo: $(VENV)/installed
	@mkdir -p build/demo
	$(BIN)/gehost compile $(DEMO_MODEL) -o build/demo/fused.onnx --vendors vendors --enable FlattenBatchMatMulAddPass --dump build/demo/dumps --report build/demo/report.html --verify

# basedpyright has one process: beside the tests it costs half of its time
test: $(VENV)/installed
	$(MAKE) --jobs=3 lint types tests

lint: $(VENV)/installed
	$(BIN)/ruff check .

types: $(VENV)/installed
	$(BIN)/basedpyright --level error

tests: $(VENV)/installed
	$(BIN)/pytest -n auto

# The site in build/docs, without a network; a broken link or anchor is an error.
docs: $(DOCS)/installed
	$(DOCS)/bin/mkdocs build

$(DOCS)/installed: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

backend: $(VENV)/installed
	$(BIN)/python -m tools.backend

gate: $(VENV)/installed
	$(BIN)/python -m tools.gate $(BASE)

# One-node models of every opset, raised to every newer one. OPSETS_ARGS=Resize for some of them.
opsets: $(VENV)/installed
	$(BIN)/python -W ignore -m tools.opset $(OPSETS_ARGS)

# Which sizes of ONNX's inference are wrong: for another version of onnx or onnxruntime. SIZES_ARGS="--cases 5000" and more.
sizes: $(VENV)/installed
	$(BIN)/python -m tools.sizes $(SIZES_ARGS)

# The passes for ONNX Runtime on the corpus: numbers on hard masks, kernels in the profile, nodes.
runtime: $(VENV)/installed
	$(BIN)/python -m tools.runtime $(RUNTIME_ARGS)

# Passes that gehost new writes from random places of the corpus. NEW_ARGS="--models 26" and more.
.PHONY: new-check
new-check: $(VENV)/installed
	$(BIN)/python -m tools.new_from $(NEW_ARGS)

# Other optimizers beside the passes for ONNX Runtime: nodes, kernels, equality. onnxruntime.transformers imports torch.
runtime-peers: $(BENCH)/installed
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench-models]'
	$(BENCH)/bin/python -W ignore -m tools.runtime.peers $(RUNTIME_ARGS)

# Latency of the corpus' transformers with the passes for ONNX Runtime: RUNTIME_ARGS="bert.ts --pairs 3" and more.
runtime-latency: $(VENV)/installed
	$(BIN)/python -m tools.runtime.latency $(RUNTIME_ARGS)

# Planted passes: gehost tune must drop one that slows a model and call one that changes nothing noise.
tune-check: $(VENV)/installed
	$(BIN)/python -m tools.tune.planted $(TUNE_ARGS)

# Inferred sizes of random shape programs, compared with ONNX Runtime's.
shapes: $(VENV)/installed
	$(BIN)/python -m tools.shapes $(SHAPES_ARGS)

fuzz: $(VENV)/installed
	$(BIN)/python -m tools.fuzz --graphs 20400 $(FUZZ_ARGS)

# Attention in random forms and sizes through the passes for ONNX Runtime.
.PHONY: fuzz-attention
fuzz-attention: $(VENV)/installed
	$(BIN)/python -W ignore -m tools.fuzz.attention --graphs 10000 $(FUZZ_ARGS)

fuzz-files: $(VENV)/installed
	$(BIN)/python -m tools.fuzz.files --files 50000 $(FUZZ_ARGS)

# Plans and splits the corpus and runs the ranks in processes.
shard: $(VENV)/installed
	$(BIN)/python -m tests.plugins.sharding.acceptance

# 2,000 models in every way that gehost zoo runs them. ZOO_ARGS="--models 200" and more.
.PHONY: zoo
zoo: $(VENV)/installed
	$(BIN)/python -m tests.plugins.zoo.acceptance $(ZOO_ARGS)

# XLA's reader and numbers: JAX in its own environment.
hlo-texts: $(JAX)/installed
	$(JAX)/bin/python tests/plugins/hlo/make_texts.py corpus build/hlo

fuzz-hlo: $(VENV)/installed
	$(BIN)/python tests/plugins/hlo/damage.py --import build/hlo/*.hlo

# MLIR's own fusion: IREE's compiler in its own environment.
linalg-fuzz: $(IREE)/installed
	$(IREE)/bin/python -m tests.plugins.linalg.fuzz --dags 20000 --graphs 2000

linalg-corpus: $(IREE)/installed
	$(IREE)/bin/python -m tests.plugins.linalg.corpus --controls

# Kernels against bodies, with gcc's sanitizers, which end the process at a fault.
kernels-fuzz: $(VENV)/installed
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 $(BIN)/python -W ignore -m tests.plugins.linalg.kernels.fuzz --cc "gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined" $(FUZZ_ARGS)

# The README's tables of kernels: groups, corpus, width 768 (of make bench-models). FIGURES_ARGS="groups --only Gelu" and more.
.PHONY: kernels-figures
kernels-figures: $(VENV)/installed
	$(BIN)/python -W ignore -m tests.plugins.linalg.figures $(FIGURES_ARGS)

# Kernels on 64-bit ARM, in an emulator (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static).
.PHONY: kernels-arm64
kernels-arm64: $(VENV)/installed
	$(BIN)/python -W ignore -m tests.plugins.linalg.kernels.emulated --cc aarch64-linux-gnu-gcc --march armv8-a --run qemu-aarch64-static

$(JAX)/installed: pyproject.toml
	$(PYTHON) -m venv $(JAX)
	$(JAX)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[verify,hlo-tests]'
	@touch $@

$(IREE)/installed: pyproject.toml
	$(PYTHON) -m venv $(IREE)
	$(IREE)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[linalg-tests]'
	@touch $@

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'gehost needs Python 3.11 or newer')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

bench: $(BENCH)/installed compiled
	$(BENCH)/bin/python -m tools.benchmarks --json build/bench.json $(BENCH_ARGS); code=$$?; $(BENCH)/bin/python -m tests.plugins.linalg.bench; $(MAKE) runtime-peers runtime-latency; $(MAKE) interpreted; exit $$code

$(BENCH)/installed: pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

# Exports that the corpus lacks, in build/models: random weights, no network but the registry. MODELS_ARGS="bert.768.dynopt" and more.
bench-models: $(MODELS)/installed
	$(MODELS)/bin/python tools/benchmarks/models.py $(MODELS_ARGS)

# torch's own index has a build without CUDA; PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL name it.
$(MODELS)/installed: pyproject.toml
	$(PYTHON) -m venv $(MODELS)
	$(MODELS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench-models]'
	@touch $@

compiled: interpreted $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling 'mypy[mypyc]>=1.18' 'setuptools>=77'
	$(BIN)/python hatch_build.py

wheel: $(VENV)/installed
	rm -rf dist
	HATCH_BUILD_HOOKS_ENABLE=true $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# The sources stay out of reach: the tests run in a folder that has neither gehost/ nor plugins/.
test-wheel: wheel
	rm -rf $(WHEEL)
	mkdir -p $(WHEEL)/clone
	cp -r docs tests tools vendors README.md CHANGELOG.md CONTRIBUTING.md Makefile pyproject.toml $(WHEEL)/clone
	for page in plugins/*/README.md; do mkdir -p "$(WHEEL)/clone/$$(dirname "$$page")" && cp "$$page" "$(WHEEL)/clone/$$page"; done
	if [ -d ../shared ]; then ln -s "$$(cd ../shared && pwd)" $(WHEEL)/shared; fi
	$(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[dev]"
	cd $(WHEEL)/clone && ../venv/bin/python -c "import gehost.ir.graph as g; assert g.__file__.endswith('.so'), g.__file__"
	cd $(WHEEL)/clone && ../venv/bin/python -m pytest -n auto

interpreted:
	find gehost . -maxdepth 1 -name '*__mypyc.*' -delete
	find gehost -name '*.so' -delete

clean: interpreted
	rm -rf $(VENV) build dist
