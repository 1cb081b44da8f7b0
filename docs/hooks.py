"""The parts of the site that lie outside docs/: pages, pictures, examples, notebooks.

MkDocs calls the functions `on_...`. Links between files of the repository also work on
the site.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(?=[)#\s])")
_MENU = re.compile(r'(?<=class="md-ellipsis">)[^<]+')
_JOINT = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[_.])(?=\w)")  # between words of a name
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
# Where files of the repository are on the site; files in docs/ keep their places.
PLACES = {
    path.name: path.name for path in ROOT.glob("*.md") if path.name != "README.md"
} | {
    "README.md": "index.md",
    "LICENSE": "LICENSE.txt",
}
PLACES |= {
    f"examples/{path.name}": f"examples/{path.stem}.md"
    for path in sorted((ROOT / "examples").glob("*.py"))
}
PLACES |= {
    f"benchmarks/results/{path.name}": f"pictures/{path.name}"
    for path in ROOT.glob("benchmarks/results/*.png")
}


def on_files(files: Files, config: Any) -> Files:
    """Add them to the site."""
    for source, place in PLACES.items():
        if place.endswith((".png", ".txt")):
            files.append(
                File.generated(config, place, content=(ROOT / source).read_bytes())
            )
        elif source.startswith("examples/"):
            files.append(File.generated(config, place, content=example(ROOT / source)))
        elif place != "index.md":
            files.append(
                File.generated(
                    config, place, content=(ROOT / source).read_text(encoding="utf-8")
                )
            )
    for page in sorted((ROOT / "docs/tutorial").glob("*.md")):
        content = json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1)
        files.append(
            File.generated(config, f"tutorial/{page.stem}.ipynb", content=content)
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the site, and offer a tutorial as a notebook."""
    place = page.file.src_uri
    source = {
        target: name for name, target in PLACES.items() if name != "README.md"
    }.get(place, f"docs/{place}")

    def there(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        target = PLACES.get(
            target, target.removeprefix("docs/") if target.startswith("docs/") else None
        )
        return (
            link[1]
            if target is None
            else posixpath.relpath(target, posixpath.dirname(place) or ".")
        )

    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(there, part) for part in parts[::2]]
    if place.startswith("tutorial/"):
        notebook = posixpath.basename(place).replace(".md", ".ipynb")
        parts.append(f"\n\n[Download this page as a notebook]({notebook})\n")
    return "".join(parts)


def on_post_page(output: str, **_: Any) -> str:
    """Let names in menus break between their words."""
    return _MENU.sub(lambda name: _JOINT.sub("<wbr>", name[0]), output)


def example(path: Path) -> str:
    """A page with what an example does, what it prints, and its source."""
    source = path.read_text(encoding="utf-8")
    record = path.parents[1] / "docs/examples" / f"{path.stem}.txt"
    tree = ast.parse(source)
    about = ast.get_docstring(tree) or ""
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno or 0 :]).strip()
    first, _, rest = about.partition("\n\n")
    rest = re.sub(
        r"(?m)(?:^    .*\n?)+",
        lambda block: f"```console\n{dedent(block[0]).rstrip()}\n```\n",
        rest,
    )
    # Without a table of contents, code of 120 columns fits.
    page = ["---\nhide: [toc]\n---", f"# {path.name}", first, rest]
    if record.exists():
        output = record.read_text(encoding="utf-8").rstrip()
        page.append("## What it prints")
        page.append("Recorded once, on a busy machine with two cores.")
        page.append(f"```text\n{output}\n```")
    page.append(f"## Source\n\n```python\n{code}\n```")
    return "\n\n".join(part for part in page if part) + "\n"


def notebook(markdown: str) -> dict[str, Any]:
    """The page as a Jupyter notebook; tests check what its code prints."""
    cells: list[dict[str, Any]] = []
    visible = re.sub(r"(?s)<!--.*?-->\n*", "", markdown)
    for text, code, output in re.findall(
        r"(?sm)(.*?)(?:^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?|\Z)", visible
    ):
        if text.strip():
            cells.append(
                {"cell_type": "markdown", "metadata": {}, "source": text.strip()}
            )
        if code:
            outputs = (
                [{"output_type": "stream", "name": "stdout", "text": output}]
                if output
                else []
            )
            cell = {
                "cell_type": "code",
                "metadata": {},
                "execution_count": None,
                "outputs": outputs,
            }
            cells.append(cell | {"source": code.rstrip("\n")})
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
