# Each target sets up what it needs in .venv by itself: Python 3.11 or later, pip and make are all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Numba's and BLAS's own threads would fight with ranks and with pytest's workers for the same cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
WORKERS ?= 2

.PHONY: demo test test-long test-gpu lint types docs bench clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[plot]"
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[plot]" --group test
	touch $@

# Torch comes as its build for CPUs, which is a tenth of the other.
$(VENV)/.test-gpu: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu --group gpu-test
	touch $@

$(VENV)/.lint: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable . --group lint
	touch $@

$(VENV)/.bench: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[plot]" --group bench
	touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[plot]" --group docs
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: $(VENV)/.test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long"

# All of that, and what takes minutes: ten thousand damaged model files, for one.
test-long: $(VENV)/.test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# What runs on a GPU, on torch's CPU device and in Triton's interpreter; with a GPU: python -m benchmarks.gpu --only check
test-gpu: $(VENV)/.test-gpu
	$(ONE_THREAD) $(BIN)/python -m pytest tests/kernels tests/solvers/test_flat_dual.py tests/estimators/test_kernel_gpu.py

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.lint $(VENV)/.test
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(ONE_THREAD) $(BIN)/python -m benchmarks.nu_margin
	$(ONE_THREAD) $(BIN)/python -m benchmarks.hard_margin
	$(ONE_THREAD) $(BIN)/python -m benchmarks.saddle_communication
	$(ONE_THREAD) $(BIN)/python -m benchmarks.saddle_paper
	$(ONE_THREAD) $(BIN)/python -m benchmarks.kernel
	$(ONE_THREAD) $(BIN)/python -m benchmarks.sparse
	$(ONE_THREAD) $(BIN)/python -m benchmarks.debiased
	$(ONE_THREAD) $(BIN)/python -m benchmarks.margin_distribution
	$(ONE_THREAD) $(BIN)/python -m benchmarks.gossip
	$(ONE_THREAD) $(BIN)/python -m benchmarks.privacy
	$(ONE_THREAD) $(BIN)/python -m benchmarks.first_use
	$(ONE_THREAD) $(BIN)/python -m benchmarks.serving

# Every warning is an error; then a look that no page asks another machine for anything.
docs: $(VENV)/.docs
	rm -rf docs/_build/html
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/tools/remote_assets.py docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-output test-artefacts docs/_build docs/_generated docs/api docs/auto_examples docs/project docs/results
