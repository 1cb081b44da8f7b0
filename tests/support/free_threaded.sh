#!/usr/bin/env bash
# free_threaded.sh [TESTS]: CPython without the GIL, of Debian's source, in build/free-threaded-VERSION/python; an
# environment beside it with torch, NumPy, pyarrow and pandas; quadrat, built for it; then the tests of these paths.
# The interpreter and the environment are made once: remove their folders to repeat it. For Debian and Ubuntu with a
# compiler, dpkg-dev and the headers of OpenSSL, libffi, zlib, bzip2, lzma and SQLite.
# VERSION=3.13 for another CPython; SANITIZER=thread compiles the interpreter and quadrat with ThreadSanitizer.
set -euo pipefail
cd "$(dirname "$0")/../.."
VERSION=${VERSION:-3.14}
JOBS=${JOBS:-$(nproc)}
FOLDER=$PWD/build/free-threaded-$VERSION${SANITIZER:+-$SANITIZER}
PYTHON=$FOLDER/python/bin/python${VERSION}t

# apt with the system's settings, mirror and keys, but folders of its own: nothing of the system changes.
fetch_source() {
    local apt=$FOLDER/apt mirror suite release
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/*$')
    for suite in sid testing; do echo "deb-src $mirror $suite main"; done > "$apt/sources.list"
    local options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache=$apt" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" --quiet update
    # A mirror may list releases that it no longer has.
    for release in $(apt-cache "${options[@]}" showsrc "python$VERSION" | sed -n 's/^Version: //p' | sort --unique -rV); do
        # Without Debian's patches, for which free-threaded interpreters have no site-packages.
        (cd "$FOLDER" && apt-get "${options[@]}" --quiet source --download-only "python$VERSION=$release" &&
            dpkg-source --skip-patches -x "python${VERSION}_$release.dsc") && return
    done
    echo "The mirror has no source of python$VERSION; VERSION=... takes another." >&2
    return 1
}

build_interpreter() {
    local sanitizer=()
    [ -z "${SANITIZER:-}" ] || sanitizer=("--with-$SANITIZER-sanitizer")
    ls "$FOLDER/python$VERSION"-*/configure > /dev/null 2>&1 || fetch_source
    mkdir -p "$FOLDER/objects"
    (
        cd "$FOLDER/objects"
        "$FOLDER/python$VERSION"-*/configure --quiet --disable-gil --disable-test-modules --without-ensurepip \
            --prefix="$FOLDER/python" "${sanitizer[@]}"
        make --quiet -j "$JOBS"
        make --quiet altinstall
    ) > "$FOLDER/build.log" 2>&1
}

mkdir -p "$FOLDER"
[ -x "$PYTHON" ] || build_interpreter

UV=$(command -v uv || echo build/uv/bin/uv)
[ -x "$UV" ] || make --no-print-directory build/uv/bin/uv
export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}} UV_PYTHON_DOWNLOADS=never
install() { "$UV" pip install --quiet --python "$FOLDER/venv" "$@"; }

if [ ! -d "$FOLDER/venv" ]; then
    "$UV" venv --quiet --python "$PYTHON" "$FOLDER/venv"
    install --only-binary :all: torch numpy pyarrow pandas pytest pytest-xdist hypothesis rich
    install scikit-build-core pybind11 ninja cmake pyyaml
    # transformers without what has no wheels here; support.without_tokenizers stands in for it. 5.x needs more.
    install --only-binary :all: "datasets<5" "huggingface-hub<1" regex
    install --no-deps "transformers==4.57.*"
    install --only-binary :all: tokenizers 2> /dev/null || true
fi

install --no-build-isolation --no-deps --reinstall-package quadrat \
    -C build-dir="$FOLDER/cmake" -C cmake.define.QUADRAT_CUDA=OFF -C cmake.define.QUADRAT_EMULATE=ON \
    -C cmake.define.QUADRAT_WERROR=ON ${SANITIZER:+-C cmake.define.QUADRAT_SANITIZE="$SANITIZER" -C install.strip=false} .
"$FOLDER/venv/bin/python" -c "import sys, quadrat._core, quadrat._testing; assert not sys._is_gil_enabled()"

# What runs without the packages that are missing. triton, which torch imports now and then, would switch the GIL on.
tests=("$@")
[ $# -gt 0 ] || tests=(tests/kernels tests/functions tests/masking tests/identity/test_{padding,language_modeling,flattening}.py
    tests/identity/test_{kept_plans,containers,threads}.py tests/integration/test_arrow_interface.py
    --deselect tests/functions/test_token_budget.py::test_accelerate_hands_out_all_ranks_batches
    --deselect tests/functions/test_stats.py::test_info_prints_the_configuration
    --deselect tests/identity/test_language_modeling.py::test_classes_without_a_backend)
export PYTHON_GIL=0 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
"$FOLDER/venv/bin/python" -m pytest --quiet -p support.without_tokenizers -m "not slow" --numprocesses "$JOBS" "${tests[@]}"
