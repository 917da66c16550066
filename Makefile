# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CAPSPOE := $(BIN)/capspoe
DATASET ?= fashion_mnist
DEMO := demo
BENCH_OUT ?= build/benchmarks

.PHONY: help demo test test-all test-python test-keras types docs notebooks page browser train sample bench wheel clean

help:
	@echo "make demo     train on the bundled digits, sample, reconstruct and export: minutes"
	@echo "make test     run the tests"
	@echo "make test-all run those that take long, too"
	@echo "make test-python PY=3.12   run them on that Python, in an environment of its own"
	@echo "make test-keras KERAS=3.12.1   run those of layers and models on that Keras, likewise"
	@echo "make types    check the type annotations of the public API"
	@echo "make page     build the page of capspoe explore, with npm"
	@echo "make browser  run the tests that need Chromium"
	@echo "make docs     build the documentation in build/site"
	@echo "make notebooks   run the tutorials and keep their outputs"
	@echo "make train    train on DATASET ($(DATASET)), which needs its data or a network"
	@echo "make sample   draw a grid from the newest model"
	@echo "make bench    measure speed and memory, in half an hour; Fashion-MNIST is needed"
	@echo "make wheel    build a wheel in dist/"
	@echo "make clean    remove the virtual environment and the demo"

# Compiled on all cores, where pip would take one. Some packages hold files of other Pythons.
$(VENV)/installed: pyproject.toml requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[test]'
	@$(BIN)/python -m compileall -qq -j 0 -x /tests/ $(VENV)/lib || true
	@touch $@

demo: $(VENV)/installed
	$(CAPSPOE) train --dataset digits --model-dir $(DEMO)/model
	$(CAPSPOE) sample --model-dir $(DEMO)/model --domain posterior --rows 6 --out $(DEMO)/samples.png
	$(CAPSPOE) sample --model-dir $(DEMO)/model --rows 6 --out $(DEMO)/samples-gaussian.png
	$(CAPSPOE) reconstruct --model-dir $(DEMO)/model --out $(DEMO)/reconstructions.png
	@echo
	@echo "Look at:"
	@echo "  $(DEMO)/samples.png            one column for each capsule, as training images are"
	@echo "  $(DEMO)/samples-gaussian.png   the same, from the paper's plain Gaussian"
	@echo "  $(DEMO)/reconstructions.png    test images and their reconstructions"
	@echo "  $(DEMO)/model/pictures/        how it learned"
	@echo "  $(DEMO)/model/1/               the SavedModel, for any TensorFlow program"

test: $(VENV)/installed
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/python tools/size.py --check
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --ignore=tests/browser \
	    $(PYTEST)

test-all:
	$(MAKE) test PYTEST="-m ''"

test-python:
	@python$(PY) --version >/dev/null 2>&1 && test -n "$(PY)" || \
	    { echo "make test-python PY=3.12: there is no python$(PY) to be found." >&2; exit 2; }
	$(MAKE) test PYTHON=python$(PY) VENV=.venv-$(PY)

# TensorFlow may ask for a newer Keras than it needs: pip says so and goes on.
test-keras:
	@test -n "$(KERAS)" || { echo "make test-keras KERAS=3.12.1: name a version." >&2; exit 2; }
	$(MAKE) .venv-keras-$(KERAS)/installed VENV=.venv-keras-$(KERAS)
	.venv-keras-$(KERAS)/bin/python -m pip install --quiet --no-deps keras==$(KERAS)
	.venv-keras-$(KERAS)/bin/python -m pytest -n 2 --dist loadfile tests/test_keras_private.py \
	    tests/keras_conventions tests/layers tests/models tests/compatibility

types: $(VENV)/installed
	$(BIN)/python -m mypy keras_capsule_poe

WEB := keras_capsule_poe/explorer/web
BUILT := keras_capsule_poe/explorer/built/page.js

# The page of `capspoe explore`: its script, and the runtime of ONNX files, at pinned versions.
$(BUILT): $(wildcard $(WEB)/src/*) $(WEB)/package.json
	@command -v npm >/dev/null || { echo "The page needs npm, of Node 20 or newer." >&2; exit 2; }
	cd $(WEB) && npm ci --no-audit --no-fund --loglevel=error && npm test --silent && npm run build --silent

page: $(BUILT)

$(VENV)/browser-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[browser]'
	@touch $@

# Without Chromium they are skipped, without npm those of the page.
browser: $(VENV)/browser-installed
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory page; fi
	$(BIN)/python -m pytest tests/browser

$(VENV)/docs-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[docs]'
	@touch $@

# Strict: a broken link or reference is an error. Notebooks are not executed. Without npm the site
# has no pages to play with.
docs: $(VENV)/docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory page && $(BIN)/python tools/play.py build/site/play; fi
	@echo "Built build/site. To read it: python3 -m http.server -d build/site"

notebooks: $(VENV)/docs-installed
	$(BIN)/python tools/notebooks.py

train: $(VENV)/installed
	$(CAPSPOE) train --dataset $(DATASET)

sample: $(VENV)/installed
	$(CAPSPOE) sample --out grid.png

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run_all.py --out $(BENCH_OUT)

# Modules that are gone would be taken from build/lib.
wheel: $(VENV)/installed page
	rm -rf build/lib
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean:
	rm -rf $(VENV) $(DEMO)
