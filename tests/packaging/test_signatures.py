"""The site shows the signatures that Python gives, and describes each parameter.

    python tests/packaging/test_signatures.py    # writes docs/signatures.json anew, after a change that is meant

The site is built without transformers, so docs/signatures.py takes the signatures from this file.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import transformers

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "docs" / "signatures.json"
PAGES = sorted((ROOT / "docs" / "api").rglob("*.md"))
DOCUMENTED = sorted(name for page in PAGES for name in re.findall(r"(?m)^::: (\S+)", page.read_text(encoding="utf-8")))


def recorded() -> dict[str, str]:
    found: dict[str, str] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


BESIDE = f"{transformers.__version__}"
SAME_VERSION = recorded()["transformers"] == BESIDE


def documented(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def signature(value: Any) -> str:
    """The signature without the modules of its types, and without the type of the result."""
    found = inspect.signature(value)
    shown = [
        one if one.annotation is one.empty else one.replace(annotation=Type(one.annotation))
        for one in found.parameters.values()
    ]
    text = str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    return text.replace("<factory>", "...")  # of a dataclass: the site reads signatures as Python


class Type:
    """A type that shows itself as it is written in the sources."""

    def __init__(self, annotation: Any) -> None:
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        self.text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)

    def __repr__(self) -> str:
        return self.text


def now() -> dict[str, str]:
    return {"transformers": BESIDE} | {path: signature(documented(path)) for path in DOCUMENTED}


@pytest.mark.skipif(not SAME_VERSION, reason="the recorded signatures are those beside another transformers")
@pytest.mark.parametrize("path", DOCUMENTED)
def test_the_site_shows_the_real_signature(path: str) -> None:
    if ".trl." in path:
        pytest.importorskip("trl")
    assert recorded().get(path) == signature(documented(path)), "python tests/packaging/test_signatures.py writes it"


def test_signatures_are_python() -> None:
    signatures = [text for path, text in recorded().items() if path != "transformers"]
    for text in signatures:
        ast.parse(f"def function{text}: ...")


def test_nothing_else_is_recorded() -> None:
    assert sorted(set(recorded()) - {"transformers"}) == DOCUMENTED


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(now(), indent=2) + "\n", encoding="utf-8")
