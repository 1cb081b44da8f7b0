"""The Python snippets of a Markdown page, and what they print.

A snippet is a block of `python`; a block of `text` right after it is what it prints, without Trainer's log.
The snippets of a page run one after the other in one namespace. Two comments, which readers of the page do not see:

    <!-- given
    code that runs before the next snippet, in the same namespace
    -->

    <!-- not run: the reason, for the next snippet alone -->
"""

import contextlib
import doctest
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PARTS = re.compile(
    r"^<!-- given\n(?P<given>.*?)^-->$"
    r"|^<!-- not run: (?P<reason>.*?) -->$"
    r"|^```python\n(?P<code>.*?)^```$(?:\n+```text\n(?P<output>.*?)^```$)?"
    r"|^```(?!python)[^\n]*\n.*?^```$",
    re.DOTALL | re.MULTILINE,
)

_LOGGED = re.compile(r"^\{'(?:train_runtime|eval_loss|loss)'.*\}\n", re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    code: str
    output: str | None = None
    reason: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def run(self, names: dict[str, Any]) -> None:
        """Run it in this namespace. Raises AssertionError if it prints something else than the page says."""
        code = compile("\n" * (self.line - 1) + self.code, str(self.page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as stdout:
            exec(code, names)
        printed = stdout.getvalue()
        if self.output is not None:
            without_logs = _LOGGED.sub("", printed)
            assert doctest.OutputChecker().check_output(self.output, without_logs, doctest.NORMALIZE_WHITESPACE), (
                f"{self.place} prints\n{printed}\nand the page says\n{self.output}"
            )
        for comment in re.findall(r"^print\(.*\)  # (.*)", self.code, re.MULTILINE):
            assert comment in printed, f"{self.place} does not print {comment!r} but\n{printed}"


def snippets(page: Path) -> Iterator[Snippet]:
    """The snippets of a page in their order, and the code that comments give."""
    text, reason = page.read_text(encoding="utf-8"), None
    for part in _PARTS.finditer(text):
        line = text.count("\n", 0, part.start()) + 2
        if part["given"] is not None:
            yield Snippet(page, line, part["given"])
        elif part["reason"] is not None:
            reason = part["reason"]
        elif part["code"] is not None:
            yield Snippet(page, line, part["code"], part["output"], reason)
            reason = None


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
