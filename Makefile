# Everything runs in .venv, which the first target makes; only make, Python ≥ 3.11 and (optionally) a C compiler are needed.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
DEMO := demo.json.gz
PAGE := demo.html

# A thousand processes of the tests import DeepProf: compiled once, not in each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-slow fuzz check lint types layers house docs api bench accuracy sentences cases gains kernels sealed unseen chaos proto protocol clean

# An editable installation is meant; setuptools need not warn of it each time.
INSTALL := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable

# What an installation is made of: when one of these changes, it is made again.
SOURCES := pyproject.toml setup.py $(wildcard mining/*.[ch] collectors/importers/*/*.[ch] collectors/live/*/*.[ch]) \
	$(wildcard web/*.json web/*.mjs web/src/* web/src/*/*)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python ≥ 3.11 found; set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv .venv
	@$@ -m pip install --quiet --upgrade "pip>=24"

.venv/demo: $(SOURCES) | $(BIN)/python
	@$(INSTALL) .
	@touch $@

.venv/test: $(SOURCES) | $(BIN)/python
	$(INSTALL) ".[test]"
	@touch $@ .venv/demo

.venv/lint: .venv/test
	$(INSTALL) ".[test,lint]"
	@touch $@

demo: .venv/demo ## write a simulated job whose graph grows, diagnose it, and write its page
	$(BIN)/deepprof simulate graph-growth -o $(DEMO)
	$(BIN)/deepprof diagnose $(DEMO)
	@echo
	$(BIN)/deepprof report $(DEMO) -o $(PAGE)

test: .venv/test ## every behaviour; what only widens a range, and three examples of four, are left to test-all
	$(BIN)/python -m pytest -n auto -q -m "not slow"

test-all: .venv/test ## all tests, with all their examples
	$(BIN)/python -m pytest -n auto -q --hypothesis-profile=all

PART ?= 0/1
test-slow: .venv/test ## what test leaves out, or a part of it: PART=3/8
	$(BIN)/python -m pytest -n auto -q -m slow --part $(PART)

fuzz: .venv/test ## examples that no test run has seen: what fails is new, and says how to repeat it
	DEEPPROF_EXPLORE=1 $(BIN)/python -m pytest -n auto -q $$(grep -rl "import.*given" tests) tests/fuzz

lint: .venv/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/lint
	$(BIN)/mypy

layers: .venv/lint
	$(BIN)/lint-imports

house: .venv/test ## how large the source code is, beside the most that is allowed
	$(BIN)/python -m tests.house

docs: .venv/test
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_api_page.py

api: .venv/test ## docs/generated/api.md and metrics.md from docstrings, schemas and declarations
	$(BIN)/python -m docs.api

check: lint types layers protocol docs test ## what a change must pass

.venv/bench: .venv/test
	$(INSTALL) ".[test,bench]" || echo "make: the peers did not install; their rows will say so" >&2
	@touch $@

bench: .venv/bench ## speed and memory beside peers, as a table
	$(BIN)/python -m benchmarks

accuracy: .venv/test ## iterations found without annotations, scored against them
	@$(BIN)/python -m benchmarks.accuracy

sentences: .venv/test ## sentences that an expert reads off the kernels of real files, and which of them reports have
	@$(BIN)/python -m benchmarks.sentences

cases: .venv/test ## jobs with a known verdict, and how often the headline is right
	@$(BIN)/python -m benchmarks.cases

kernels: .venv/test ## what kernels compute, told by names and operators, scored against labels
	@$(BIN)/python -m benchmarks.kernel_names

gains: .venv/test ## bounds of findings beside what the changes gain that they advise; as root FIRST=--first on a busy machine
	@$(BIN)/python -m benchmarks.gains $(FIRST)

sealed: .venv/test ## jobs drawn anew from the commit's hash: nobody has seen them, and no rule was mended with them
	@$(BIN)/python -m benchmarks.sealed

unseen: .venv/test ## recordings of all kinds by a second generator, which was written without the rules
	@$(BIN)/python -m benchmarks.unseen

chaos: .venv/test ## the daemon killed, its disk failing, clients that lie: what was lost, in about ten minutes
	$(BIN)/python -m benchmarks.chaos --output docs/generated/chaos.md

# An environment of its own: the pinned compiler, whose code runs with every protobuf from 4.25 on, needs an old one.
.venv-proto/bin/python: pyproject.toml
	for p in python3.12 python3.11 python3; do $$p -c 'import sys; sys.exit(sys.version_info >= (3, 13))' 2>/dev/null \
	  && $$p -m venv .venv-proto && break; done
	$@ -m pip install --quiet "grpcio-tools==1.62.3"

proto: .venv-proto/bin/python ## compile the message types; the results are committed
	$< -m grpc_tools.protoc -Iproto --descriptor_set_out=collectors/importers/xla/xplane.binpb proto/xplane.proto
	$< -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. --grpc_python_out=. proto/deepprof/v1/*.proto

protocol: .venv/lint ## the wire keeps its word: style, and nothing that breaks clients of the last release
	cd proto && ../$(BIN)/buf lint && ../$(BIN)/buf breaking --against released.binpb

clean:
	rm -rf .venv .venv-proto build dist *.egg-info mining/*.so collectors/importers/*/*.so collectors/live/*/*.so $(DEMO)
