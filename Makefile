# `make demo` and `make test` stand alone: each sets up what it needs first.
PYTHON ?= python3
# The PyTorch to install: name a CPU build here if your index offers one.
TORCH ?= torch==2.13.0

PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --no-input
BIN = .venv/bin
# Bytecode is kept whatever the environment says: the tests start Python a hundred times.
unexport PYTHONDONTWRITEBYTECODE
# Tests in lanes: tests/lanes.toml says which folders each has.
LANES = $(BIN)/python -m tests.lanes

.PHONY: help setup optimize optimise demo lint unit test test-all lane lanes gpu docker oldest check audit lock wheel dist release-check mlserver kserve torch-server clean clean-machine
.DEFAULT_GOAL := help

help:
	@echo "To use it:"
	@echo "  make demo           build the models, start Triton, send it real input"
	@echo "  make setup          both Python environments; every other command makes them, too"
	@echo "  make optimize       the packages for \`tritonkit build --variants all\`"
	@echo "  make clean          remove the environments and everything that was written for them"
	@echo "To test it, from a minute to an hour:"
	@echo "  make lint           ruff, mypy and clang-format"
	@echo "  make unit           the tests that start no server, without the slow ones"
	@echo "  make test           both, and the tests on a real Triton that touch every room"
	@echo "  make test-all       every test, and a record of the run for .ci/run"
	@echo "  make lane LANE=...  one lane of tests; \`make lanes\` lists them"
	@echo "  make gpu            what only an NVIDIA GPU can show, measured and tested (docs/gpu.md)"
	@echo "  make oldest         the client's tests with the oldest tritonclient that is supported"
	@echo "  make clean-machine  make demo and make unit in a container of bare Debian"
	@echo "To release it:"
	@echo "  make check          generated files are up to date"
	@echo "  make audit          bandit, and pip-audit over both environments"
	@echo "  make lock           the newest versions of the server's packages, with their hashes"
	@echo "  make wheel          the wheel, installed and used in an empty folder"
	@echo "  make docker         the compose stack, tested on a real Docker daemon"
	@echo "  make dist           the source distribution and the wheels, in dist/"

setup:
	@$(MAKE) --no-print-directory -j2 .venv/.ready .venv-server/.ready

.venv/.ready: pyproject.toml
	@echo "Setting up .venv, the project's environment (a minute or two, 3.3 GB) ..."
	@$(PYTHON) -m venv --upgrade-deps .venv
	@$(BIN)/python $(PIP_INSTALL) "$(TORCH)"
	@$(BIN)/python $(PIP_INSTALL) -e ".[build,environments,keras,models,trees,loadtest,cache,metrics,tracing,tune,plan,gateway,store,kubernetes,openai,examples,dev]"
	@touch $@

.venv-server/.ready: python_backends/requirements-base.txt python_backends/requirements.txt python_backends/requirements-common.lock python_backends/requirements.lock $(shell find python_backends/native python_backends/site -name '*.py' -o -name '*.[ch]' -o -name '*.cpp' -o -name '*.pth')
	@$(PYTHON) python_backends/environment.py .venv-server
	@touch $@

optimize: .venv/.optimize

optimise: optimize # as it was called before 0.2

.venv/.optimize: .venv/.ready
	@echo "Adding OpenVINO, NNCF, TensorRT-RTX and LiteRT to .venv (a minute or two, 1.5 GB) ..."
	@$(BIN)/python $(PIP_INSTALL) "$(TORCH)" -e ".[optimize,modelopt,tensorrt,llm]"
	@touch $@

demo: setup
	@$(BIN)/tritonkit demo

# What runs inside tritonserver, and the ceiling of the benches.
NATIVE = $(shell find python_backends/native bench/ceiling tests/native -name '*.cpp' -o -name '*.[ch]')
LINT = $(BIN)/ruff check . && $(BIN)/ruff format --check --quiet . && $(BIN)/mypy \
	&& $(BIN)/clang-format --dry-run --Werror $(NATIVE)

lint: setup
	@$(LINT)

unit: optimize
	@$(LANES) unit

# All of it runs, whatever fails; the exit code says whether all of it succeeded.
test: optimize
	@$(LANES) test

test-all: optimize
	@$(LANES) all --record

# The lanes that LANE names; `make lanes` lists them.
lane: optimize
	@$(LANES) $(or $(LANE),$(error name one: make lane LANE=docker; `make lanes` lists them))

lanes: setup
	@$(LANES)

# What only an NVIDIA GPU can show (docs/gpu.md). It needs nothing of the other targets.
gpu:
	@$(PYTHON) tools/gpu.py $(if $(WHEELS),--wheels "$(WHEELS)") $(if $(RESUME),--resume)

# The tests that need tritonclient's messages, with the oldest version that pyproject.toml allows.
OLDEST := $(shell sed -n 's/.*tritonclient.*>=\([0-9.]*\)".*/\1/p' pyproject.toml)
OLDEST_TESTS = tests/client/wire --ignore=tests/client/wire/interop --ignore=tests/client/wire/fuzz --ignore=tests/client/wire/http2 \
	$(addprefix tests/client/,shm streams test_aio.py test_many.py test_sync.py \
	test_tritonclient.py) tests/server/shared/test_client.py
WITH_OLDEST = TRITONCLIENT=$(OLDEST) PYTHONPATH=$(CURDIR)/.venv-oldest $(BIN)/python

oldest: setup .venv-oldest/.ready
	@$(WITH_OLDEST) -m pytest -m "not slow" $(OLDEST_TESTS)
	@$(WITH_OLDEST) -c "from importlib.metadata import version as v; print('tritonclient', v('tritonclient'))"

.venv-oldest/.ready: pyproject.toml | .venv/.ready
	@rm -rf .venv-oldest
	@$(BIN)/python $(PIP_INSTALL) --no-deps --target .venv-oldest tritonclient==$(OLDEST)
	@touch $@

# Servers of the Open Inference Protocol that are no Triton; tests/client/test_oip.py calls them.
mlserver kserve: %: .venv-%/.ready

.venv-mlserver/.ready .venv-kserve/.ready: .venv-%/.ready:
	@echo "Setting up .venv-$*, a server that tests call (a minute or two, 0.5 GB) ..."
	@$(PYTHON) -m venv --upgrade-deps .venv-$*
	@.venv-$*/bin/python $(PIP_INSTALL) $*
	@touch $@

# A server that has PyTorch too, for models served as TorchScript or .pt2: tests/server/torch starts it.
torch-server: .venv-server-torch/.ready

.venv-server-torch/.ready: .venv-server/.ready python_backends/requirements-torch.txt
	@$(PYTHON) python_backends/environment.py .venv-server-torch --torch
	@touch $@

# Needs a Docker daemon, or root and Debian's docker.io to start one.
docker: setup
	@$(BIN)/python -m pytest tests/docker

# The wheel, installed into a fresh environment in an empty folder.
wheel: setup
	@$(BIN)/python -m pytest tests/packaging

# The source distribution, the wheel for machines like this one, and the one for any.
dist: setup
	@$(BIN)/python $(PIP_INSTALL) build "setuptools>=77"
	@TRITONKIT_NATIVE=require $(BIN)/python -m build --no-isolation --outdir dist
	@TRITONKIT_NATIVE=no $(BIN)/python -m build --no-isolation --wheel --outdir dist

# The same with each Python that is promised; PYTHONS names them where PATH does not have them.
PYTHONS ?= python3.11 python3.12 python3.13
release-check: setup
	@for python in $(PYTHONS); do echo "$$($$python --version)"; \
		PACKAGING_PYTHON=$$python $(BIN)/python -m pytest tests/packaging || exit 1; done

# Needs a Docker daemon, and root with debootstrap where the base is not there yet.
clean-machine: setup
	@$(BIN)/python tools/clean_machine.py

check: setup
	@$(BIN)/python tools/check.py

# Our own code, and known vulnerabilities of what it runs on. Findings of low severity are ruff's (S).
audit: setup
	@$(BIN)/bandit --quiet --configfile pyproject.toml --severity-level medium --recursive \
		src python_backends deploy loadtest tools
	@$(BIN)/python tools/audit.py .venv .venv-server

lock:
	@$(PYTHON) tools/lock.py

clean:
	rm -rf .venv .venv-server .venv-server-torch .venv-oldest .venv-mlserver .venv-kserve .tritonkit
