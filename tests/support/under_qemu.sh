#!/usr/bin/env bash
# Uses an aarch64 wheel, and runs the tests of the kernels with it, under qemu-user:
#
#     tests/support/under_qemu.sh WHEEL FOLDER
#
# FOLDER gets an aarch64 Python of the wheel's version from Debian's packages, and NumPy and pytest from the package
# index. It needs Debian or Ubuntu, qemu-user, and uv (UV=PATH names it). With QUADRAT_EMULATE=ON, the CUDA kernels are
# tested as well.
set -euo pipefail
wheel=$(realpath "$1")
folder=$(realpath -m "$2")
tests=$(realpath "$(dirname "$0")/..")
python="python3.$(basename "$wheel" | sed -E 's/.*-cp3([0-9]+)-.*/\1/')"
root=$folder/root
site=$folder/site

command -v qemu-aarch64 >/dev/null || { echo "qemu-aarch64 is missing: apt-get install qemu-user" >&2; exit 1; }
if [ ! -x "$root/usr/bin/$python" ]; then
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
  : >"$folder/apt/status"
  apt=(apt-get -qq -o "Dir::State=$folder/apt" -o "Dir::State::status=$folder/apt/status" -o "Dir::Cache=$folder/apt/cache"
    -o APT::Architecture=arm64 -o APT::Architectures=arm64)
  "${apt[@]}" update
  "${apt[@]}" --yes --no-install-recommends --download-only install "$python" libstdc++6
  for package in "$folder"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
fi
if [ ! -d "$site/numpy" ]; then
  "${UV:-uv}" pip install --quiet --target "$site" --python-platform aarch64-manylinux_2_28 \
    --python-version "${python#python}" --only-binary :all: numpy pytest hypothesis
fi
rm -rf "$site"/quadrat*
python3 -m zipfile -e "$wheel" "$site"

export QEMU_LD_PREFIX=$root PYTHONHOME=$root/usr PYTHONPATH=$site PYTHONDONTWRITEBYTECODE=1 HYPOTHESIS_PROFILE=sanitize
run() { qemu-aarch64 "$root/usr/bin/$python" "$@"; }
run -c "import platform; print(platform.machine(), platform.python_version())"
run "$tests/support/wheel_alone.py"
cd "$tests/.."
# torch would take longer to load than all of these tests take; this machine cannot start other processes of aarch64.
mapfile -t files < <(grep -LE "torch|transformers|ingest|subprocess" tests/kernels/test_*.py)
run -m pytest -q -p no:cacheprovider "${files[@]}"
