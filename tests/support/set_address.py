"""Name the repository in what is published: `python tests/support/set_address.py https://host/owner/name [FOLDER]`.

A package index shows the README alone. Its links to files become links to the repository, at the tag of the version,
and pyproject.toml gets `[project.urls]`. The workflows run this before they build, in a checkout that is thrown away.
"""

import re
import sys
from pathlib import Path

# The address in `[text](address)` or `![text](address)`, where it is neither absolute nor a place on the same page.
RELATIVE = re.compile(r"(?P<image>!\[[^\[\]]*)?\]\((?P<path>(?!\w+:|#)[^)\s]+)\)")
BEFORE = "[project.optional-dependencies]\n"


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """A Markdown text whose links to files name the repository; pictures are shown from there."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "blob"
        return f"{link['image'] or ''}]({repository}/{kind}/{tag}/{link['path']})"

    return RELATIVE.sub(absolute, text)


def with_addresses(project: str, repository: str, tag: str) -> str:
    """The text of a pyproject.toml, with `[project.urls]`."""
    pages = {
        "Repository": repository,
        "Documentation": f"{repository}/blob/{tag}/docs",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    lines = "".join(f'{name} = "{address}"\n' for name, address in pages.items())
    before, separator, after = project.partition(BEFORE)
    if not separator:
        raise SystemExit(f"pyproject.toml has no {BEFORE.strip()}")
    return f"{before}[project.urls]\n{lines}\n{separator}{after}"


def set_address(repository: str, folder: Path) -> None:
    project, readme = folder / "pyproject.toml", folder / "README.md"
    text = project.read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    if version is None:
        raise SystemExit("pyproject.toml has no version")
    tag = f"v{version[1]}"
    repository = repository.rstrip("/")
    project.write_text(with_addresses(text, repository, tag), encoding="utf-8")
    readme.write_text(with_absolute_links(readme.read_text(encoding="utf-8"), repository, tag), encoding="utf-8")


if __name__ == "__main__":
    set_address(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "."))
