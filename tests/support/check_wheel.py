"""Whether wheels are fit to be handed out: `make wheel` runs this on what it built.

    python tests/support/check_wheel.py [--only-contents] [--python PYTHON] WHEEL ...

It needs the packages of the dependency group `check`. --python names the interpreter that the wheel is for, if it is
another one. --only-contents installs nothing, and is for wheels of other processors. The exit status is 1 if a wheel
failed.
"""

import argparse
import email
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from set_address import RELATIVE

# Libraries of every Linux that the tags stand for; auditwheel knows which versions of them. CUDA's is in the module.
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-[\w-]+)\.so\.\d")
ALONE = Path(__file__).with_name("wheel_alone.py")
# Its tag names the oldest glibc that a wheel runs with, and the processor.
TAG = re.compile(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)")
MACHINES = {"x86_64": "x64", "aarch64": "AArch64"}


def modules_of(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            if name.endswith(".so"):
                yield name, content.read(name)


def glibc_asked_for(elf: ELFFile) -> tuple[int, ...]:
    sections = [section for section in elf.iter_sections() if isinstance(section, GNUVerNeedSection)]
    names = [version.name for section in sections for _, versions in section.iter_versions() for version in versions]
    numbers = [name.removeprefix("GLIBC_").split(".") for name in names if re.match(r"GLIBC_\d", name)]
    return max(tuple(map(int, number)) for number in numbers)


def faults_of_module(elf: ELFFile) -> Iterator[str]:
    """What is wrong with the dynamic section, the exported symbols and the stack of a module."""
    for tag in elf.get_section_by_name(".dynamic").iter_tags():
        if tag.entry.d_tag == "DT_NEEDED" and not SYSTEM.fullmatch(tag.needed):
            yield f"needs {tag.needed}"
        elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH", "DT_TEXTREL"):
            yield f"has {tag.entry.d_tag}"
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    defined = [symbol for symbol in symbols if symbol.entry.st_shndx != "SHN_UNDEF"]
    # Weak ones are types, shared by name.
    exported = [symbol.name for symbol in defined if symbol.entry.st_info.bind == "STB_GLOBAL"]
    if strange := [name for name in exported if not name.startswith("PyInit_")]:
        yield f"exports {len(strange)} symbols beside PyInit_: {', '.join(strange[:5])}"
    headers = [segment.header for segment in elf.iter_segments()]
    if any(header.p_type == "PT_GNU_STACK" and header.p_flags & 1 for header in headers):
        yield "has an executable stack"


def faults_of_content(wheel: Path) -> list[str]:
    """What is wrong with the files of a wheel and its metadata."""
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        (bill,) = (name for name in names if name.endswith(".dist-info/sboms/quadrat.cdx.json"))
        message = email.message_from_bytes(content.read(metadata))
        parts = json.loads(content.read(bill))
    links = RELATIVE.findall(message.get_payload()) if message["Project-URL"] else []
    faults = [f"its description has {len(links)} links to files that the index does not have"] * bool(links)
    faults += [f"{name} is no part of a wheel" for name in names if name.endswith((".cpp", ".hpp", ".a", ".pyc"))]
    if parts["metadata"]["component"]["version"] != message["Version"] or message["Version"] not in wheel.name:
        faults.append("its name, metadata and bill of materials name different versions")
    if unknown := [part["name"] for part in parts["components"] if not part["version"]]:
        faults.append(f"its bill of materials does not say which version of {', '.join(unknown)}")
    return faults


def run(*command: str | Path) -> str:
    """The last line a command writes. Raises CalledProcessError."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment)
    return (done.stdout.strip().splitlines() or [""])[-1]


def try_out(wheel: Path, python: Path) -> str:
    """Install the wheel into a new environment and use it. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        python = Path(folder) / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--prefer-binary", wheel)
        return run(python, ALONE)


def check(wheel: Path, *, only_contents: bool, python: Path) -> bool:
    """Print the faults of a wheel; whether it is fit."""
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    tag = TAG.search(wheel.name)
    faults = faults_of_content(wheel)
    if tag is None:
        faults.append("its tag names no glibc: it is for this machine only")
    newest = (999,) if tag is None else (int(tag[1]), int(tag[2]))
    for name, code in modules_of(wheel):
        elf = ELFFile(io.BytesIO(code))
        asked = glibc_asked_for(elf)
        glibc = ".".join(map(str, asked))
        faults += [f"{name}: {fault}" for fault in faults_of_module(elf)]
        if asked > newest:
            faults.append(f"{name}: asks for glibc {glibc}")
        if tag is not None and (MACHINES[tag[3]] != elf.get_machine_arch() or f"-{tag[3]}-" not in name):
            faults.append(f"{name}: is not named and built for {tag[3]}")
        print(f"  {name}: {len(code) / 1e6:.1f} MB, glibc {glibc}")
    for tool in (("auditwheel", "show"), ("twine", "check", "--strict"), ("check_wheel_contents",)):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run([sys.executable, "-m", *tool, wheel], check=False, text=True, **streams)
        if done.returncode != 0:
            faults.append(f"{' '.join(tool)}: {done.stdout.strip()}")
    try:
        if not only_contents:
            print("  alone:", try_out(wheel, python))
    except subprocess.CalledProcessError as error:
        faults.append(f"it does not work: {error}")
    for fault in faults:
        print(f"  FAILED: {fault}")
    return not faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--python", type=Path, default=sys.executable)
    parser.add_argument("--only-contents", action="store_true")
    options = vars(parser.parse_args())
    passed = [check(wheel, **options) for wheel in options.pop("wheels")]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
