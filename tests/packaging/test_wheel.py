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

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


def run(*command, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for expected in ("py.typed", "_core.pyi", "installed/tested.json", "collators/padding.py"):
        assert f"quadrat/{expected}" in names
    assert not [
        name for name in names if name.startswith(("tests", "csrc", "benchmarks")) or name.endswith((".cpp", ".o"))
    ]
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at modules of Linux")
def test_links_neither_torch_nor_cuda(wheel):
    pytest.importorskip("elftools", reason="the dependency group `check` has it")
    printed = run(sys.executable, SUPPORT / "check_wheel.py", "--only-contents", wheel).stdout
    assert "quadrat/_core." in printed
    assert not re.search(r"\.so: (needs|has) ", printed), printed


def test_fresh_environment(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, stdout=subprocess.DEVNULL)
    used = run(python, SUPPORT / "wheel_alone.py", cwd=tmp_path)
    assert used.returncode == 0, used.stderr
    info = run(python, "-m", "quadrat", "info")
    assert "not installed" in info.stdout
    assert sys.version.split()[0] in info.stdout


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
