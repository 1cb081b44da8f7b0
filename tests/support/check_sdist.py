"""The source distribution is complete, and made twice it is the same bytes; so are two wheels built of it offline.

    python tests/support/check_sdist.py FOLDER

writes it to FOLDER: `make sdist` runs this. It needs the packages of the dependency group `build`. SOURCE_DATE_EPOCH
becomes the time of every file in the archives. The wheels are built in two folders, without CUDA.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def only(folder: Path) -> Path:
    (entry,) = folder.iterdir()
    return entry


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def make_sdist(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return only(folder)


def make_wheel(sdist: Path, folder: Path) -> Path:
    """The wheel of a source distribution that is unpacked in a folder of its own."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "wheel"]
    environment = {**os.environ, "QUADRAT_CUDA": "OFF"}
    source = only(folder / "source")
    subprocess.run([*command, source], check=True, stdout=subprocess.DEVNULL, env=environment)
    return only(folder / "wheel")


def missing_in(sdist: Path) -> list[str]:
    """The files git knows that are not there, except those that pyproject.toml leaves out."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout
    left_out = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["sdist"]["exclude"]
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    return [name for name in listed.splitlines() if name not in there and not name.startswith(tuple(left_out))]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / name for name in ("one", "another-place")]
        sdists = [make_sdist(place / "sdist") for place in places]
        if missing := missing_in(sdists[0]):
            print(f"FAILED: {len(missing)} files are missing: {', '.join(missing[:9])}")
            return 1
        wheels = [make_wheel(sdist, place) for sdist, place in zip(sdists, places, strict=True)]
        for pair in (sdists, wheels):
            digests = [digest(file) for file in pair]
            print(f"{pair[0].name}: {pair[0].stat().st_size / 1e6:.2f} MB, SHA-256 {digests[0]}")
            if digests[0] != digests[1]:
                print(f"FAILED: the second has {digests[1]}")
                return 1
        Path(sys.argv[1]).mkdir(exist_ok=True)
        shutil.copy(sdists[0], sys.argv[1])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
