# The commands of the project. Each makes the environments that it needs, in .venv* and build/; CONTRIBUTING.md describes
# them and their options. The last group is in noxfile.py.

PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
BIN := .venv/bin
CPP = $(shell find csrc -name '*.[chc]pp' -o -name '*.cu' -o -name '*.cuh')
SOURCES := CMakeLists.txt pyproject.toml README.md LICENSE $(shell find csrc python -type f -not -name '*.pyc')

# uv: from the PATH, or in an environment of its own. It looks for wheels where pip does, and refuses folders that are not
# there, which pip ignores.
UV := $(or $(shell command -v uv),build/uv/bin/uv)
INSTALL := $(UV) pip install --quiet --python
export UV_FIND_LINKS ?= $(foreach one,$(PIP_FIND_LINKS),$(if $(findstring ://,$(one)),$(one),$(wildcard $(one))))
export UV_PYTHON_DOWNLOADS := never
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

# CUDA kernels are compiled for the GPU of this machine; without one, for one architecture, to see that they compile.
# Wheels to distribute have them for all architectures.
GPU := $(shell nvidia-smi -L 2>/dev/null)
.venv-demo/.installed dev build/dev/.built: export CUDAARCHS ?= $(if $(GPU),native,80-virtual)
DEV := --no-build-isolation --no-deps --reinstall-package quadrat -C build-dir=build/dev/cmake \
	-C cmake.define.QUADRAT_WERROR=ON -C cmake.define.QUADRAT_EMULATE=ON
# One thread of torch for each process: there is a process for each core.
PYTEST := -m pytest --quiet --benchmark-disable --numprocesses $(JOBS) --dist worksteal
TEST := env OMP_NUM_THREADS=1 QUADRAT_WHEEL_DIR=build/dev

.DEFAULT_GOAL := test
.PHONY: demo test test-all test-rest free-threaded dev lint format clean matrix bench docs sanitize fuzz faults leaks wheel sdist release

demo: .venv-demo/.installed
	.venv-demo/bin/python examples/classify_packages.py $(ARGS)

# With T=PATHS, these tests alone, on the sources as they are.
ifdef T
test: dev
	$(TEST) $(BIN)/python $(PYTEST) $(T) $(ARGS)
else
test: .venv/.installed .venv-4/.installed
	@$(TEST) $(BIN)/python $(PYTEST) -m "not slow" tests benchmarks $(ARGS) || failed="the newest transformers"; \
	$(TEST) .venv-4/bin/python $(PYTEST) -m "not slow and not same_everywhere" tests/identity tests/model $(ARGS) || \
		failed="$${failed:+$$failed and }transformers 4.57"; \
	if [ -n "$$failed" ]; then echo "Tests fail with $$failed" >&2; exit 1; fi
endif

# What `make test` leaves out, and the property tests with more examples.
test-rest: export HYPOTHESIS_PROFILE ?= thorough
test-rest: .venv/.installed .venv-4/.installed
	$(TEST) $(BIN)/python $(PYTEST) -m "slow or property" tests $(ARGS)
	$(TEST) .venv-4/bin/python $(PYTEST) tests/identity tests/integration tests/model $(ARGS)

test-all: test test-rest

free-threaded:
	tests/support/free_threaded.sh $(T)

# A binding that git calls modified is compiled alone: seconds instead of those of its whole group.
dev: EDITED = $(shell git diff --name-only HEAD -- 'csrc/bindings/*.cpp' 2>/dev/null)
dev: .venv/.ready
	rm -f .venv/.installed
	$(INSTALL) .venv $(DEV) -C "cmake.define.QUADRAT_EDITED=$(subst $(eval) ,;,$(EDITED))" --editable .

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/cmake -S . -B build/tidy -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja --log-level=ERROR \
		-DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DQUADRAT_CUDA=OFF -DQUADRAT_EMULATE=ON -DQUADRAT_UNITY=OFF \
		-DPython_EXECUTABLE=$(abspath $(BIN))/python -Dpybind11_DIR="$$($(BIN)/python -m pybind11 --cmakedir)"
	$(BIN)/run-clang-tidy.py -quiet -hide-progress -j $(JOBS) -p build/tidy -clang-tidy-binary $(BIN)/clang-tidy csrc/

format: .venv/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

matrix bench docs sanitize fuzz faults leaks wheel sdist release: .venv/.installed
	$(BIN)/nox --session $@ -- $(ARGS)

clean:
	rm -rf build dist .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks

# Twice quiet: errors are shown, and no warnings of folders that are not there.
build/uv/bin/uv:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet --quiet --disable-pip-version-check uv

.venv-demo/.installed: $(SOURCES) | $(UV)
	@echo "Installing torch, transformers and what the demo draws with in .venv-demo, then compiling quadrat: some minutes"
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv-demo
	env $(if $(GPU),,QUADRAT_CUDA=OFF) $(INSTALL) .venv-demo --group demo --reinstall-package quadrat .
	touch $@

.venv/.ready: pyproject.toml | $(UV)
	@echo "Installing torch, transformers and the tools of the tests in .venv: some minutes"
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv
	$(INSTALL) .venv --group dev
	touch $@

.venv-4/.ready: pyproject.toml | $(UV)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv-4
	$(INSTALL) .venv-4 --group base "transformers==4.57.*"
	touch $@

build/dev/.built: .venv/.ready $(SOURCES)
	@echo "Compiling quadrat: less than a minute on two cores"
	rm -f build/dev/*.whl
	$(UV) build --quiet --wheel --python .venv --out-dir build/dev $(filter-out --no-deps --reinstall-package quadrat,$(DEV))
	touch $@

.venv/.installed .venv-4/.installed: %/.installed: %/.ready build/dev/.built
	$(INSTALL) $* --no-deps --reinstall-package quadrat build/dev/*.whl
	touch $@
