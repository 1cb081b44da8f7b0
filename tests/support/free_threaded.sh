#!/usr/bin/env bash
# free_threaded.sh [TESTS]: CPython without the GIL, of Debian's source, in build/free-threaded-VERSION/python; an
# environment beside it with torch, NumPy, pyarrow and pandas; quadrat, built for it; then the tests of these paths.
# The interpreter and the environment are made once: remove their folders to repeat it. For Debian and Ubuntu with a
# compiler, dpkg-dev and the headers of OpenSSL, libffi, zlib, bzip2, lzma and SQLite.
# VERSION=3.13 takes another CPython. SANITIZER=thread compiles the interpreter and quadrat with ThreadSanitizer, in
# build/free-threaded-VERSION/thread, and runs the tests that start threads.
set -euo pipefail
cd "$(dirname "$0")/../.."
VERSION=${VERSION:-3.14}
JOBS=${JOBS:-$(nproc)}
SANITIZER=${SANITIZER:-}
SOURCE=$PWD/build/free-threaded-$VERSION
FOLDER=$SOURCE${SANITIZER:+/$SANITIZER}
PYTHON=$FOLDER/python/bin/python${VERSION}t

# apt with the system's settings, mirror and keys, but folders of its own: nothing of the system changes.
fetch_source() {
    local apt=$SOURCE/apt mirror suite release
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/*$')
    for suite in sid testing; do echo "deb-src $mirror $suite main"; done > "$apt/sources.list"
    local options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache=$apt" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" --quiet update
    # A mirror may list releases that it no longer has.
    for release in $(apt-cache "${options[@]}" showsrc "python$VERSION" | sed -n 's/^Version: //p' | sort --unique -rV); do
        # Without Debian's patches, for which free-threaded interpreters have no site-packages.
        (cd "$SOURCE" && apt-get "${options[@]}" --quiet source --download-only "python$VERSION=$release" &&
            dpkg-source --skip-patches -x "python${VERSION}_$release.dsc") && return
    done
    echo "The mirror has no source of python$VERSION; VERSION=... takes another." >&2
    return 1
}

build_interpreter() {
    ls "$SOURCE/python$VERSION"-*/configure > /dev/null 2>&1 || fetch_source
    mkdir -p "$FOLDER/objects"
    (
        cd "$FOLDER/objects"
        "$SOURCE/python$VERSION"-*/configure --quiet --disable-gil --disable-test-modules --without-ensurepip \
            --prefix="$FOLDER/python" ${SANITIZER:+"--with-$SANITIZER-sanitizer" OPT="-DNDEBUG -g -O1"}
        make --quiet -j "$JOBS"
        make --quiet altinstall COMPILEALL_OPTS="-r 0" # the rest is compiled when it is imported
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
    install --only-binary :all: torch numpy pyarrow pandas pytest pytest-xdist pytest-benchmark hypothesis
    install scikit-build-core pybind11 ninja cmake pyyaml
    # transformers without what has no wheels here, for which tests/support/without_tokenizers.py stands in, in every
    # process of this environment. 5.x needs more.
    install --only-binary :all: "datasets<5" "huggingface-hub<1" regex
    install --only-binary :all: --no-deps "transformers==4.57.*" accelerate psutil
    for package in tokenizers safetensors; do install --only-binary :all: "$package" 2> /dev/null || true; done
    printf '%s\n' "$PWD/tests" "import support.without_tokenizers" \
        > "$FOLDER/venv/lib/python${VERSION}t/site-packages/stand_ins.pth"
fi

flags=(--no-build-isolation --no-deps --reinstall-package quadrat -C build-dir="$FOLDER/cmake" -C cmake.define.QUADRAT_CUDA=OFF
    -C cmake.define.QUADRAT_EMULATE=ON -C cmake.define.QUADRAT_WERROR=ON)
# triton, which torch imports now and then, would switch the GIL on.
export CMAKE_BUILD_PARALLEL_LEVEL=$JOBS PYTHON_GIL=0 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TSAN_OPTIONS=report_bugs=0

if [ -n "$SANITIZER" ]; then
    install "${flags[@]}" --target "$FOLDER/site" -C cmake.build-type=RelWithDebInfo -C install.strip=false \
        -C cmake.define.QUADRAT_SANITIZE="$SANITIZER" .
    # What the interpreter's developers know of it, too.
    cat "tests/support/${SANITIZER}_suppressions.txt" "$SOURCE/python$VERSION"-*/Tools/tsan/suppressions_free_threading.txt \
        > "$FOLDER/suppressions.txt"
    [ $# -gt 0 ] || set -- tests/{kernels,functions,identity/test_threads.py} tests/integration/test_{arrow_dataset,gather}_in_threads.py
    SUPPRESSIONS=$FOLDER/suppressions.txt exec "$FOLDER/venv/bin/python" tests/support/sanitize.py "$FOLDER/site" -j "$JOBS" "$@"
fi

install "${flags[@]}" .
"$FOLDER/venv/bin/python" -c "import sys, quadrat._core, quadrat._testing; assert not sys._is_gil_enabled()"

# What runs without the packages that are missing.
[ $# -gt 0 ] || set -- tests/{kernels,functions,masking} tests/identity/test_{padding,language_modeling,flattening}.py \
    tests/identity/test_{containers,threads}.py tests/integration/test_arrow_interface.py
"$FOLDER/venv/bin/python" -m pytest --quiet -m "not slow" --numprocesses "$JOBS" "$@"
