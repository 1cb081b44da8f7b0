"""A release in dist/: `make release` runs this.

    python tests/support/release.py [--built] [--all]

Builds the source distribution, and a wheel for each Python of this machine; installs each wheel with the oldest and the
newest packages and runs `random_cases.py` there; writes a bill of materials and checksums; prints what remains to be
done by hand. --built takes what lies in dist/; --all wants the wheels of all platforms there. The output of each step
is in build/release. It needs uv, the packages of the dependency group `check` and, to build, nox.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Collection, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "release"
MACHINE = f"manylinux*_{platform.machine()}"
PLATFORMS = {
    "manylinux*_x86_64": "Linux on x86-64",
    "manylinux*_aarch64": "Linux on aarch64",
    "macosx_*_arm64": "macOS",
    "win_amd64": "Windows",
}
EXTRAS = ("transformers", "cli")
# The lowest versions that pyproject.toml allows and this Python has wheels of; and the newest.
LOWEST = ("--resolution", "lowest-direct", "--requirements", str(ROOT / "pyproject.toml"))
ENDS = {"oldest": (*LOWEST, *(word for extra in EXTRAS for word in ("--extra", extra))), "newest": ()}


class ReleaseError(Exception):
    """A step failed, or a file is missing."""


def project() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pythons() -> list[str]:
    """The tags of the wheels that the workflow builds, such as cp312."""
    return [pattern.removesuffix("-*") for pattern in project()["tool"]["cibuildwheel"]["build"].split()]


def spoken(tag: str) -> str:
    """The version in a tag: 3.12 for cp312."""
    return f"3.{tag.removeprefix('cp3')}"


def interpreters(tags: Iterable[str]) -> dict[str, Path]:
    """The interpreter on this machine for each tag: on the PATH or of pyenv, with the headers a build needs."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = [*os.environ["PATH"].split(os.pathsep), *map(str, sorted(pyenv.glob("*/bin"), reverse=True))]
    ask = "import os, sysconfig; raise SystemExit('Python.h' not in os.listdir(sysconfig.get_path('include')))"
    paths = {}
    for tag in tags:
        for folder in folders:
            path = shutil.which(f"python{spoken(tag)}", path=folder)
            # The stand-in of a version that pyenv has not switched on exits with an error.
            if path and subprocess.run([path, "-c", ask], capture_output=True, check=False).returncode == 0:
                paths[tag] = Path(path)
                break
    return paths


def step(name: str, *command: str | Path, **variables: str) -> str:
    """The output of a command, which is also in a file named after the step. Raises ReleaseError."""
    print(f"{name} ...", end=" ", flush=True)
    start, log = time.monotonic(), WORK / f"{re.sub(r'[^a-z0-9.]+', '-', name.lower())}.log"
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with log.open("w") as file:
        streams = {"stdout": file, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, check=False, cwd=ROOT, env=environment | variables, **streams)
    print(f"{time.monotonic() - start:.0f} s", flush=True)
    output = log.read_text()
    if done.returncode != 0:
        raise ReleaseError(f"{name}:\n{output[-3000:]}\nAll of its output is in {log.relative_to(ROOT)}.")
    return output


def build(here: dict[str, Path]) -> None:
    nox = (sys.executable, "-m", "nox", "--session")
    shutil.rmtree(DIST, ignore_errors=True)
    for tag, python in here.items():
        beside = {"WHEEL_PYTHON": python.name, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        step(f"Wheel for Python {spoken(tag)}", *nox, "wheel", **beside)
        # qemu runs the Python that Debian has for aarch64, which is of the system's version.
        system = Path("/usr/bin/python3").resolve().name
        if platform.machine() == "x86_64" and system == python.name and shutil.which("qemu-aarch64"):
            step(f"Wheel for Python {spoken(tag)} on aarch64", *nox, "wheel", PROCESSOR="aarch64", **beside)
    step("Source distribution", *nox, "sdist")


def missing(names: Collection[str], version: str, tags: Iterable[str], platforms: Iterable[str]) -> list[str]:
    """The files of a release that are not among these names, as patterns."""
    wheels = [f"{tag.rstrip('t')}-{tag}-{machine}.whl" for tag in tags for machine in platforms]
    wanted = [f"quadrat-{version}{end}" for end in (".tar.gz", *(f"-{wheel}" for wheel in wheels))]
    return [file for file in wanted if not any(fnmatch(name, file) for name in names)]


def verified(tag: str, python: Path, end: str, version: str) -> str:
    """The versions that `random_cases.py` ran with, in an empty environment that gets the others from the index."""
    name, folder = f"Python {spoken(tag)}, {end} packages", WORK / "environment"
    uv = (sys.executable, "-m", "uv")
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", python, folder], check=True)
    index = ("--find-links", DIST, "--refresh-package", "quadrat", "--only-binary", ":all:")
    package = f"quadrat[{','.join(EXTRAS)}]=={version}"
    step(f"{name}: install", *uv, "pip", "install", "--python", folder, *index, *ENDS[end], package)
    alike = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    step(f"{name}: random cases", folder / "bin" / "python", Path(__file__).with_name("random_cases.py"), **alike)
    ask = "import torch, transformers; print('torch', torch.__version__ + ', transformers', transformers.__version__)"
    done = subprocess.run([folder / "bin" / "python", "-c", ask], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def parts_of(wheel: Path) -> list[dict[str, Any]]:
    """The parts of other projects in a wheel, by its own bill of materials."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/sboms/quadrat.cdx.json"))
        return list(json.loads(content.read(name))["components"])


def cuda_of(wheel: Path) -> str:
    return next((f", CUDA {part['version']}" for part in parts_of(wheel) if part["name"].startswith("cuda-")), "")


def write_bill(file: Path, environment: Path, wheels: Iterable[Path]) -> None:
    """The bill of materials (CycloneDX) of a release: the packages of an environment, and what the wheels contain."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    options = ("--mc-type", "library", "--output-reproducible", "--no-validate", "--sv", "1.6")  # validated below
    command = (sys.executable, "-m", "cyclonedx_py", "environment", *options, "--pyproject", ROOT / "pyproject.toml")
    done = subprocess.run((*command, environment / "bin" / "python"), check=True, capture_output=True, text=True)
    bill = json.loads(done.stdout)
    quadrat = bill["metadata"]["component"]
    quadrat["purl"] = f"pkg:pypi/quadrat@{quadrat['version']}"
    contained = {f"contained {part['name']} {part['version']}": part for wheel in wheels for part in parts_of(wheel)}
    bill["components"] += [{**part, "bom-ref": name} for name, part in sorted(contained.items())]
    bill["dependencies"] += [{"ref": name} for name in sorted(contained)]
    for entry in bill["dependencies"]:
        if entry["ref"] == quadrat["bom-ref"]:
            entry["dependsOn"] = sorted({*entry.get("dependsOn", ()), *contained})
    text = json.dumps(bill, indent=2) + "\n"
    if (error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise ReleaseError(f"the bill of materials is not valid: {error}")
    file.write_text(text, encoding="utf-8")


def write_checksums(folder: Path) -> None:
    """SHA256SUMS, for `sha256sum --check`."""
    sums = folder / "SHA256SUMS"
    digests = {file.name: hashlib.sha256(file.read_bytes()) for file in sorted(folder.iterdir()) if file != sums}
    sums.write_text("".join(f"{digest.hexdigest()}  {name}\n" for name, digest in digests.items()), encoding="utf-8")


def release(*, built: bool, everything: bool) -> None:
    version, tags = project()["project"]["version"], pythons()
    here = interpreters(tag for tag in tags if not tag.endswith("t"))  # others have no wheels of tokenizers
    if not here:
        raise ReleaseError(f"no Python of {', '.join(map(spoken, tags))} with headers is on the PATH or in pyenv")
    WORK.mkdir(parents=True, exist_ok=True)
    if not built:
        build(here)
    files = sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])
    names = [file.name for file in files]
    if lacking := missing(names, version, tags if everything else here, PLATFORMS if everything else [MACHINE]):
        raise ReleaseError(f"dist/ lacks {', '.join(lacking)}")
    if strange := [name for name in names if not name.startswith((f"quadrat-{version}-", f"quadrat-{version}.tar"))]:
        raise ReleaseError(f"dist/ has files of another version: {', '.join(strange)}")
    step("Metadata", sys.executable, "-m", "twine", "check", "--strict", *files)
    packages = {tag: [verified(tag, python, end, version) for end in ENDS] for tag, python in here.items()}
    wheels = [file for file in files if file.suffix == ".whl"]
    # The environment that was made last: the newest packages on the newest Python.
    write_bill(DIST / f"quadrat-{version}.cdx.json", WORK / "environment", wheels)
    write_checksums(DIST)

    print(f"\nquadrat {version} is in dist/, with a bill of materials (quadrat-{version}.cdx.json) and SHA256SUMS:")
    for file in files:
        print(f"  {file.name}: {file.stat().st_size / 1e6:.1f} MB{cuda_of(file) if file in wheels else ''}")
        tag = next((tag for tag in here if fnmatch(file.name, f"*-{tag}-{MACHINE}.whl")), None)
        print(*(f"    agrees with transformers: {text}\n" for text in packages.get(tag, ())), sep="", end="")
    print("\nLeft to .github/workflows/release.yml, because this machine does not have the Python or the platform:")
    for machine, words in PLATFORMS.items():
        absent = [spoken(tag) for tag in tags if missing(names, version, [tag], [machine])]
        print(f"  {words}: {', '.join(absent) or 'nothing'}")
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    print(page.partition("## Publish\n")[2].partition("\n## ")[0].replace("<version>", version))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--all", action="store_true", dest="everything")
    try:
        release(**vars(parser.parse_args()))
    except ReleaseError as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
