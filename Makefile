# make demo   the main job on real input: fine-tune a small classifier with the reference collator and with quadrat's
# make test   two environments (the newest transformers and 4.57.x), the build, and all tests in each
# make matrix the comparison with the reference on eight versions of transformers, and with the oldest and the newest of
#             all packages; a table of the results, and with ARGS=--record docs/compatibility.md
# make bench  quadrat against the installed transformers, side by side
# make wheel  the wheel to distribute, checked; make sdist, the sources
# make docs   the documentation site, in build/docs/site
# make fuzz   the property tests on bytes, SECONDS=600 long, also against a build with sanitizers
# make faults, make leaks: what faults do to batches, and what batches leave behind, as tables
# make lint | sanitize | clean
#
# Each target sets up what it needs under .venv*/ and build/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BIN4 := .venv-4/bin
# Of transformers: 4 is 4.57, and `newest` what $(VENV) has.
VERSIONS := 4 5.0 5.6 5.12 5.14 5.18 5.22 newest
# Of all packages together: dependency groups of these names.
EXTREMES := oldest latest
SOURCES := CMakeLists.txt pyproject.toml README.md LICENSE $(shell find csrc python -type f -not -name '*.pyc')
CPP := $(shell find csrc -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
WHEEL_DEV := build/dev/.built
ENV := env HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 TOKENIZERS_PARALLELISM=false
# Tests run in so many processes.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# One thread of torch each: there is a process for each core.
TESTS := $(ENV) OMP_NUM_THREADS=1
PYTEST := pytest --numprocesses $(JOBS) --dist worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := test
.PHONY: demo test test-5 test-4 matrix bench docs lint format sanitize fuzz faults leaks wheel sdist clean

demo: $(VENV)/.installed
	$(ENV) $(BIN)/python examples/classify_packages.py $(ARGS)

test: test-5 test-4

test-5: $(VENV)/.installed
	$(TESTS) QUADRAT_WHEEL_DIR=build/dev $(BIN)/python -m $(PYTEST) tests

# The second environment is there for the reference: what does not depend on its version has been tested already.
test-4: .venv-4/.installed
	$(TESTS) HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),half) $(BIN4)/python -m $(PYTEST) tests/identity tests/integration

# One environment after the other, however those before went; then a table of all. Code that is not known yet is compiled
# here, which is how it becomes known.
matrix:
	rm -rf build/matrix
	-$(MAKE) --keep-going --jobs=1 --no-print-directory $(VERSIONS:%=matrix-%) $(EXTREMES:%=matrix-%)
	$(BIN)/python tests/support/matrix.py build/matrix $(VERSIONS) $(EXTREMES) $(ARGS)

matrix-newest: $(VENV)/.installed
	$(TESTS) QUADRAT_UNTESTED=1 $(BIN)/python -m $(PYTEST) tests/identity --junitxml=build/matrix/newest.xml

matrix-%: .venv-%/.installed
	$(TESTS) QUADRAT_UNTESTED=1 .venv-$*/bin/python -m $(PYTEST) tests/identity --junitxml=build/matrix/$*.xml

bench: $(VENV)/.installed .venv-4/.installed
	$(ENV) $(BIN)/python benchmarks/report.py $(ARGS)
	$(ENV) $(BIN)/python benchmarks/peers.py
	$(ENV) $(BIN)/python benchmarks/loop.py
	$(ENV) $(BIN)/python -m pytest --quiet --benchmark-columns=median,iqr benchmarks/bench_peers.py
	$(ENV) $(BIN)/python benchmarks/growth.py
	$(ENV) $(BIN)/python benchmarks/memory.py
	$(ENV) $(BIN)/python benchmarks/limit.py
	$(ENV) $(BIN)/python benchmarks/dataloader.py
	$(ENV) $(BIN)/python benchmarks/gather.py
	$(ENV) $(BIN)/python benchmarks/batching.py
	$(ENV) $(BIN)/python benchmarks/varlen.py
	$(ENV) $(BIN)/python benchmarks/varlen_masks.py
	$(BIN4)/python -m pip install --quiet --group bench
	$(ENV) $(BIN4)/python benchmarks/report.py
	$(ENV) $(BIN4)/python benchmarks/peers.py --jobs padding --rows 32 --lengths 512
	$(BIN)/python -m cogapp -P -r -I benchmarks $$(grep -lF '[[[cog' README.md docs/*.md)

# Warnings are errors, broken links among them. It reads the sources, and compiles nothing.
DOCS := build/docs/venv
docs: build/docs/.ready
	env NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict

build/docs/.ready: pyproject.toml
	test -d $(DOCS) || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(DOCS)/bin/python -m pip install --quiet --group docs
	touch $@

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/cmake -S . -B build/tidy -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja --log-level=ERROR \
		-DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DQUADRAT_CUDA=OFF -DQUADRAT_EMULATE=ON \
		-DPython_EXECUTABLE=$(abspath $(BIN))/python -Dpybind11_DIR="$$($(BIN)/python -m pybind11 --cmakedir)"
	$(BIN)/run-clang-tidy.py -quiet -hide-progress -j $(JOBS) -p build/tidy -clang-tidy-binary $(BIN)/clang-tidy csrc/

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# The tests against a build with AddressSanitizer and UndefinedBehaviorSanitizer, each file in a process of its own;
# ARGS may name some of them, or with -j say how many run at a time. SANITIZER=thread: the tests that start threads.
SANITIZER := address
SANITIZED = $(CURDIR)/build/sanitize/$(SANITIZER)
sanitize: build/sanitize/$(SANITIZER)/.built
	$(TESTS) CXX="$(CXX)" $(BIN)/python tests/support/sanitize.py $(SANITIZED)/site $(ARGS)

# Half of the processes use the build with sanitizers. ARGS may name files of tests; finds are in build/fuzz/finds.
fuzz: SECONDS ?= 600
fuzz: $(VENV)/.installed build/sanitize/address/.built
	$(TESTS) CXX="$(CXX)" $(BIN)/python tests/fuzz/driver.py --seconds $(SECONDS) --jobs $(JOBS) \
		--sanitized $(CURDIR)/build/sanitize/address/site $(ARGS)

build/sanitize/%/.built: $(VENV)/.ready $(SOURCES)
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --upgrade --target build/sanitize/$*/site \
		-C build-dir=build/sanitize/$*/cmake -C cmake.build-type=RelWithDebInfo -C install.strip=false \
		-C cmake.define.QUADRAT_SANITIZE=$(*:address=address,undefined) -C cmake.define.QUADRAT_CUDA=OFF \
		-C cmake.define.QUADRAT_EMULATE=ON .
	touch $@

# Faults injected while batches are made; ARGS="--quick" makes it short, "--only GROUP" chooses.
faults: $(VENV)/.installed
	$(TESTS) PYTHONPATH=tests $(BIN)/python -m support.faults $(ARGS)

# What is left of 200,000 batches of each kind; ARGS="--batches 2000" makes it short.
leaks: $(VENV)/.installed
	$(TESTS) PYTHONPATH=tests $(BIN)/python -m support.leaks --processes $(JOBS) $(ARGS)

# The wheel to distribute, in dist/: linked against glibc 2.17 (manylinux2014) and checked. QUADRAT_CUDA=OFF leaves the
# CUDA kernels out. PROCESSOR=aarch64 builds for that processor, without them, and runs the tests of the kernels with
# qemu-user, on Debian or Ubuntu.
WHEEL := build/wheel
WHEEL_BIN := $(WHEEL)/venv/bin
HOST := $(shell uname -m)
PROCESSOR := $(HOST)
ifneq ($(PROCESSOR),$(HOST))
# The wheel's tag and the names of its modules.
CROSS := QUADRAT_CUDA=OFF _PYTHON_HOST_PLATFORM=linux-$(PROCESSOR) SETUPTOOLS_EXT_SUFFIX=$(subst $(HOST),$(PROCESSOR),$(shell \
	$(PYTHON) -c "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"))
endif
# The time of every file in an archive, so that a second build gives the same bytes.
wheel sdist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)
BUILD_WHEEL := env ZIG="$$($(WHEEL_BIN)/python -c 'import ziglang, pathlib; print(pathlib.Path(ziglang.__file__).with_name("zig"))')" \
	ZIG_TARGET=$(PROCESSOR)-linux-gnu.2.17 CMAKE_TOOLCHAIN_FILE=$(CURDIR)/cmake/zig.cmake $(CROSS)
wheel: $(WHEEL)/.ready
	rm -rf $(WHEEL)/linux
	$(BUILD_WHEEL) $(WHEEL_BIN)/python -m build --wheel --no-isolation --outdir $(WHEEL)/linux \
		-C build-dir=$(WHEEL)/cmake-$(PROCESSOR) .
	env PATH="$(abspath $(WHEEL_BIN)):$$PATH" $(WHEEL_BIN)/auditwheel repair --wheel-dir dist $(WHEEL)/linux/*.whl
	$(WHEEL_BIN)/python tests/support/check_wheel.py $(if $(CROSS),--only-contents) dist/*-manylinux*_$(PROCESSOR).whl $(ARGS)
ifdef CROSS
	tests/support/under_qemu.sh dist/*-manylinux*_$(PROCESSOR).whl $(WHEEL)/qemu
endif

# The source distribution in dist/: complete, and two wheels that are built of it offline are the same bytes.
sdist: $(WHEEL)/.ready
	$(WHEEL_BIN)/python tests/support/check_sdist.py dist
	$(WHEEL_BIN)/python -m twine check --strict dist/*.tar.gz

$(WHEEL)/.ready: pyproject.toml
	test -d $(WHEEL)/venv || $(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL_BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(WHEEL_BIN)/python -m pip install --quiet --group wheel
	touch $@

$(VENV)/.ready: pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

# The last release of a version, for example of 5.6, with what goes with it; or a group.
.venv-%/.ready: pyproject.toml
	test -d .venv-$* || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	.venv-$*/bin/python -m pip install --quiet $(if $(filter $*,$(EXTREMES)),--group $*,--group base "transformers==$*.*")
	touch $@

# One build serves all environments; warnings are errors here, and the CUDA kernels are built for emulation too.
$(WHEEL_DEV): $(VENV)/.ready $(SOURCES)
	rm -f build/dev/*.whl
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/dev \
		-C build-dir=build/dev/cmake -C cmake.define.QUADRAT_WERROR=ON -C cmake.define.QUADRAT_EMULATE=ON .
	touch $@

$(VENV)/.installed: $(WHEEL_DEV)
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall build/dev/*.whl
	touch $@

.venv-%/.installed: .venv-%/.ready $(WHEEL_DEV)
	.venv-$*/bin/python -m pip install --quiet --no-deps --force-reinstall build/dev/*.whl
	touch $@

.PRECIOUS: .venv-%/.ready .venv-%/.installed

clean:
	rm -rf build dist $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
