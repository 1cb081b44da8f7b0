"""What is published names the repository, and README links to files that exist."""

import re
import shutil
from pathlib import Path

import pytest

from support.set_address import RELATIVE, set_address, with_absolute_links

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
