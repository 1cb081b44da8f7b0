"""The wheel that `make test` built is complete and works alone; what is published names the repository."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from support.set_address import RELATIVE, set_address, with_absolute_links


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for expected in ("py.typed", "_core.pyi", "installed/tested.json", "collators/padding.py"):
        assert f"quadrat/{expected}" in names
    assert any(name.startswith("quadrat/_core.") and name.endswith(".so") for name in names)
    assert not [
        name for name in names if name.startswith(("tests", "csrc", "benchmarks")) or name.endswith((".cpp", ".o"))
    ]
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf (binutils)")
def test_links_neither_torch_nor_cuda(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for library in tmp_path.glob("quadrat/*.so"):
        dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "NEEDED" in line]
        allowed = ("libstdc++", "libm.", "libgcc_s", "libc.", "libpthread", "libdl", "librt", "ld-linux")
        assert [name for name in needed if not name.startswith(allowed)] == [], library.name


def test_fresh_environment(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, stdout=subprocess.DEVNULL)
    program = """
import quadrat, sys
assert "torch" not in sys.modules
assert quadrat.pad([[1, 2], [3]]).tolist() == [[1, 2], [3, 0]]
try:
    quadrat.DataCollatorWithPadding
except ModuleNotFoundError as error:
    print(error)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, env=environment, check=False, cwd=tmp_path
    )
    assert said.returncode == 0, said.stderr
    assert 'pip install "quadrat[transformers]"' in said.stdout
    info = subprocess.run(
        [python, "-m", "quadrat", "info"], capture_output=True, text=True, env=environment, check=True
    )
    assert "not installed" in info.stdout
    assert sys.version.split()[0] in info.stdout


ROOT = Path(__file__).parents[2]


def test_links_of_the_readme_become_absolute(tmp_path):
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    set_address("https://example.org/own/er/", tmp_path)
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == "https://example.org/own/er"
    assert project["optional-dependencies"]
    text = (tmp_path / "README.md").read_text()
    assert not RELATIVE.search(text)
    linked = re.findall(rf"\(https://example\.org/own/er/(?:blob|raw)/v{re.escape(project['version'])}/([^)#]+)", text)
    assert linked
    assert [path for path in linked if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/a.md#b)", "[a](R/blob/T/docs/a.md#b)"),
        ("![a](docs/a.png)", "![a](R/raw/T/docs/a.png)"),
        ("[![a](a.png)](docs)", "[![a](R/raw/T/a.png)](R/blob/T/docs)"),
        ("[a](#b), [c](https://d/e), [f](mailto:g)", "[a](#b), [c](https://d/e), [f](mailto:g)"),
        ("rows[[1, 0]], f(x)", "rows[[1, 0]], f(x)"),
    ],
)
def test_what_is_a_link(text, expected):
    assert with_absolute_links(text, "R", "T") == expected
