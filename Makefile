# Two commands on a fresh machine (Python 3.11 or newer, make, a network that reaches PyPI): `make demo`, `make test`.

.DEFAULT_GOAL := help
.PHONY: help setup engines system check lint lint-python lint-rust test test-pythons test-gpu test-lmrs test-installed test-containers test-deployment soak simulations searches plans demo pictures docs lock dashboards bundle clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo-installed
TORCH_INDEX := https://download.pytorch.org/whl/cpu/
WORKERS ?= 6
SELECTED := not gpu and not lmrs and not own_environment and not containers and not deployment

TIMED = $$(grep -rl --include='test_*.py' 'mark\.alone' tests)

# Parallel processes sometimes starve each other, so failed tests run again, one at a time; a second failure counts.
# $(call suite,PYTHON,OPTIONS,MARKS,FILES)
define suite
export MAKEFLAGS= OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 POLARS_MAX_THREADS=1; \
$(1) -m pytest $(2) --cache-clear --dist loadgroup --no-loadscope-reorder -m "$(SELECTED) $(3)" $(4); code=$$?; \
if [ $$code = 1 ]; then \
	echo "Running the failed tests again, one at a time."; \
	$(1) -m pytest $(2) -n 1 --dist loadgroup --last-failed --last-failed-no-failures none --maxfail 3 \
		-m "$(SELECTED) $(3)" $(4); code=$$?; \
fi; exit $$code
endef

# The suite starts hundreds of processes: let them share compiled bytecode, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# In the user's cache, so that a new checkout reuses it.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/enginebench/mypy

# Behind a company's proxy only the system's certificates work. If the system has none, uv uses its own.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= true
endif

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## create the environment of the test suite in .venv

# PyPI's torch for Linux is the CUDA build, several GB. PyTorch's own index has a CPU build of the same version. Without
# an NVIDIA driver, and if that index answers, that build is installed first, and the other packages are resolved around
# it. All others must have the hashes in requirements.lock. `--require-hashes` is not used, because it would also need
# the CUDA packages of PyPI's torch. A package that the lock does not name is refused.
$(STAMP): EXTRAS := dev
$(DEMO): EXTRAS := transformers,mistralrs
$(STAMP) $(DEMO): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "enginebench needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python has no venv module here; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade uv
	@if [ "$$(uname)" = Linux ] && [ ! -e /proc/driver/nvidia ] && ! $(BIN)/python -c 'import torch' 2>/dev/null && \
		$(BIN)/python -c 'import urllib.request; urllib.request.urlopen("$(TORCH_INDEX)", timeout=5)' 2>/dev/null; then \
		$(UV) pip install --python $(BIN)/python --quiet --torch-backend cpu --no-deps "$$(grep -oE '^torch==[0-9.]+' requirements.lock)"; \
	fi
	@if $(UV) pip compile pyproject.toml $$(echo ",$(EXTRAS)" | sed 's/,/ --extra /g') --python $(BIN)/python --constraint requirements.lock \
		--quiet --no-header --no-annotate | grep -vxF "$$(grep -oE '^[a-z0-9._-]+==[^ ;]+' requirements.lock)"; then \
		echo "These packages are not in requirements.lock, so their hashes cannot be checked: make lock" >&2; exit 2; \
	fi
	$(UV) pip install --python $(BIN)/python --compile-bytecode --verify-hashes --constraint requirements.lock --editable '.[$(EXTRAS)]'
	@touch $@

system: $(STAMP) ## install system packages for the test suite (Prometheus, Chromium, HAProxy, curl), as root on Debian
	@missing=""; for program in prometheus chromium haproxy curl; do PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "missing:$$missing; the tests that need them are skipped" >&2; fi

# In parallel: mypy takes a minute of one core, and clippy's first run a minute and a half.
lint: $(STAMP) ## ruff, mypy --strict; rustfmt and clippy if cargo is installed
	@$(MAKE) --no-print-directory --jobs=2 lint-python lint-rust

lint-python: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# With the tests' profile, so that the tests reuse the compiled build scripts and macros.
lint-rust: $(STAMP)
	$(BIN)/python -m engines.rust.programs cargo fmt --all --check
	$(BIN)/python -m engines.rust.programs cargo clippy --locked --workspace --all-targets --profile quick -- -D warnings

engines: $(STAMP) ## build the Rust engines for this machine (FEATURES=cuda,…); skipped without cargo
	$(BIN)/python -m engines.rust.programs build $(if $(FEATURES),--features $(FEATURES))

# The Rust engines are built in parallel with the first tests; tests that need one run last (tests/conftest.py).
test: system ## the whole test suite
	@ENGINEBENCH_RUST_PROFILE=quick nice $(BIN)/python -m engines.rust.programs build >/dev/null 2>&1 & \
	( $(call suite,$(BIN)/python,-n $(WORKERS),and not alone) ); first=$$?; \
	wait; \
	( $(call suite,$(BIN)/python,-n 5,and alone,$(TIMED)) ); exit $$((first + $$?))

# Interpreters of these versions on the path or in pyenv's folder, except the one that ran the suite. The tests cover
# what differs between Python versions: processes, declarations, schemas, clients, Locust, and the installed wheel.
OTHER_PYTHONS := 3.11 3.12 3.13 3.14
QUICK = tests/settings tests/records tests/engines/fake tests/engines/contract/test_protocol.py \
	$(addprefix tests/engines/process/test_, child_process.py supervisor.py scripted_child.py worker.py tree.py) \
	tests/loadtests/client tests/loadtests/users tests/loadtests/test_standard_names.py \
	tests/test_enginebench.py tests/test_installation.py \
	$(addprefix --deselect=tests/test_installation.py::test_, $(ON_ONE_PYTHON))
ON_ONE_PYTHON := doctor_starts_a_load_test_and_says_where_it_is_installed a_python_that_is_not_here_finds_wheels_of_everything

test-pythons: ## the quick part of the suite on each other Python that this machine has
	@$(MAKE) --no-print-directory --jobs=2 --keep-going $(OTHER_PYTHONS:%=test-python-%)

test-python-%: $(STAMP)
	@test $* != $$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 0; \
	for python in $$(command -v python$*) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$*.*/bin/python; do \
		"$$python" -c '' 2>/dev/null || continue; \
		said=$$(mktemp -d); ( $(UV) venv --quiet --clear --python "$$python" .venv-$* && \
		$(UV) pip install --quiet --compile-bytecode --python .venv-$*/bin/python --constraint requirements.lock \
			--editable '.[quick]' && \
		$(call suite,.venv-$*/bin/python,-n 4 -o cache_dir=$$said/cache,and not alone,$(QUICK)) ) >$$said/output 2>&1; code=$$?; \
		echo "Python $*: $$python"; cat $$said/output; rm -rf $$said; exit $$code; \
	done

check: lint test ## lint, types and tests

test-gpu: $(STAMP) ## the tests that need a GPU
	$(BIN)/python -m pytest -m gpu $$(grep -rl --include='test_*.py' 'mark\.gpu' tests)

test-lmrs: $(STAMP) ## the tests that need lm.rs's own program (ENGINEBENCH_LMRS=path/to/backend)
	$(BIN)/python -m pytest -m lmrs

test-installed: $(STAMP) ## install vLLM, OpenVINO and llama.cpp in separate environments, and run their tests (about five minutes)
	$(BIN)/enginebench engines install vllm
	$(BIN)/enginebench engines install openvino
	$(BIN)/enginebench engines install llamacpp
	$(BIN)/python -m pytest -m own_environment

# Go verifies the sources of both programs by the public checksum database.
test-deployment: $(STAMP) ## build helm and actionlint with Go, and check the chart, the Action and the workflows (five minutes)
	@for package in helm.sh/helm/v3/cmd/helm@v3.19.5 github.com/rhysd/actionlint/cmd/actionlint@v1.7.12; do \
		name="$${package%@*}"; name="$${name##*/}"; \
		PATH="$(BIN):$$PATH" command -v $$name >/dev/null || GOBIN="$(CURDIR)/$(BIN)" go install $$package || exit 1; \
	done
	$(BIN)/python -m pytest -m deployment tests/docker tests/test_action.py

test-containers: $(STAMP) ## build the images and start the compose file (Docker, or podman as root; about five minutes)
	$(BIN)/python -m pytest -m containers tests/docker

soak: $(STAMP) ## half an hour of well-behaved and misbehaving clients against one server
	$(BIN)/python -m validation.speed.server_soak

simulations: $(STAMP) ## how often the intervals hold and the verdicts are wrong (about ten minutes)
	$(BIN)/python -m validation.statistics

plans: $(STAMP) ## errors and promises of capacity plans on servers of known cost (about 35 minutes)
	$(BIN)/python -m validation.plan.plans
	$(BIN)/python -m validation.plan.futures --output validation/results/plan_futures.json

searches: $(STAMP) ## coverage and cost of the search for capacity (some minutes)
	$(BIN)/python -m validation.statistics.capacity_searches

# A fixed number of requests of one length, so that both engines do the same work in every repeat. Answers are long
# enough to show batching. Each engine is loaded once. Requests in flight at the end of a run are not counted, so they
# are cut off after a second.
demo: $(DEMO) ## two engines at 8 users, three interleaved repeats, a winner and a report (two and a half minutes)
	$(BIN)/enginebench run concurrent --engine transformers --engine mistralrs --repeat 3 --keep-loaded \
		--stages 8 --stage-requests 8 --prompt-tokens 38 --output-tokens 12 -- --stop-timeout 1

pictures: $(STAMP) ## regenerate the pictures of the documentation from real runs (about half an hour)
	$(BIN)/python -m docs.pictures

docs: $(STAMP) ## build the documentation site in dist/docs; a broken link fails
	$(UV) pip install --python $(BIN)/python --quiet --group docs
	$(BIN)/python -m typer enginebench.cli utils docs --name enginebench --output docs/command-line.md
	$(BIN)/zensical build --clean --strict

dashboards: $(STAMP) ## regenerate the Grafana dashboards from Python
	$(BIN)/python grafana/build.py

bundle: $(STAMP) ## one archive in dist/ for a GPU machine without network (Linux x86-64, CPython 3.12, its own torch and transformers)
	$(BIN)/python docker/bundle/build.py

lock: ## update requirements.lock from pyproject.toml
	$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header --quiet --upgrade -o requirements.lock

clean: ## remove the environment and tool caches
	rm -rf $(VENV) $(VENV)-* $(MYPY_CACHE_DIR) .mypy_cache .ruff_cache .pytest_cache .hypothesis
