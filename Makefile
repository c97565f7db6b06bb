# Two commands for a newcomer: `make demo` and `make test`. Everything else is below them.
comma  := ,
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What the example's kernels need besides where there is a GPU to run them on.
DEMO   := $(if $(shell command -v nvidia-smi),[triton$(comma)nvrtc$(comma)cutlass$(comma)cute-dsl])

WORKFLOWS := $(wildcard .github/workflows/*.yml)

.PHONY: help demo demo-regenerate test test-exam test-fast test-gpu check format schemas picture clean

help:
	@echo "make demo      gate kernels of two of example_project's models on this machine"
	@echo "make demo-regenerate  break a kernel, have it repaired from a recording, open a pull request on a twin of GitHub"
	@echo "make test      what each change runs (CPU): each command and option once, each reason, each kind of kernel"
	@echo "make test-exam the tests that take longer; make test-exam EXAM=tests/honest is a part of them"
	@echo "make test-fast parsers, numbers, reports, traces"
	@echo "make test-gpu  the tests that need an NVIDIA GPU, with the python that has torch"
	@echo "make check     ruff, mypy, import-linter, vulture; workflows, action and their scripts"
	@echo "make format    let ruff rewrite the sources"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.$(DEMO)'
	@touch $@

$(STAMP): $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/python -m pytest --cgins -rfE example_project --ignore example_project/production -k 'decoder or mnist'
	@echo 'All of the example: $(BIN)/python -m pytest --cgins example_project. Your own model: README.md, "Five minutes".'

demo-regenerate: $(STAMP)
	$(BIN)/python -m tests.demo_regenerate

# Assertions are rewritten once a change of a file, and not in each process of each run, whatever the environment says.
test test-exam test-fast test-gpu: export PYTHONDONTWRITEBYTECODE :=

# Two processes, a file each, in the order of tests/conftest.py; tests that compare times have the machine to themselves.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m 'not exam' --dist loadfile --no-loadscope-reorder --ignore tests/timing/alone
	$(BIN)/python -m pytest -m 'not exam' tests/timing/alone

# What takes more than a second or two, and properties on new examples: exam.yml runs it in parts, .ci/run those of what changed.
EXAM ?= tests
test-exam: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m 'exam or hypothesis' --hypothesis-profile default --dist loadfile --no-loadscope-reorder \
	  --ignore tests/timing/alone $(EXAM)
	$(if $(filter tests tests/timing,$(EXAM)),$(BIN)/python -m pytest -m exam tests/timing/alone)

test-fast: $(STAMP)
	$(BIN)/python -m pytest -m 'not exam' tests/config tests/report tests/packs tests/verify \
	  tests/app/test_cli.py tests/gate/test_correctness_verdict.py tests/core/test_trace.py tests/core/test_text.py

# The machine with the GPU often brings its own torch: nothing is installed here.
test-gpu:
	$(PYTHON) -m pytest -p no:cgins -p pytest_cgins.plugin -m gpu tests/gpu tests/building/test_cuda.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy action/*.py
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows $(WORKFLOWS)
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions action/action.yml
	$(BIN)/zizmor --offline --quiet --persona=auditor --strict-collection action $(WORKFLOWS)
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/actionlint $(WORKFLOWS)
	$(BIN)/shellcheck action/*.sh example_project/ci/*.sh

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The published JSON Schemas follow from the documents in pytest_cgins/core.
schemas: $(STAMP)
	$(BIN)/python -m tests.write_schemas

picture: $(STAMP)
	$(BIN)/python -m tests.terminal_picture

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
