"""The end of `make matrix`: one line for each version of transformers, from the reports that pytest wrote.

    python tests/support/matrix.py DIRECTORY NAME...

Exits with 1 where a test failed, and where a version has no report or ran no test.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

UNKNOWN = "?"


class Report(NamedTuple):
    """What a run of pytest came to; the version is what tests/conftest.py recorded."""

    version: str
    passed: int
    failed: int
    skipped: int


def read(path: Path) -> Report | None:
    """The report in a JUnit file; None where there is none, or no test ran."""
    try:
        tree = ElementTree.parse(path)
    except (OSError, ElementTree.ParseError):
        return None
    suites = list(tree.iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    found = [one.get("value", "") for one in tree.iter("property") if one.get("name") == "transformers"]
    failed = failures + errors
    return Report(found[0] if found else UNKNOWN, total - failed - skipped, failed, skipped) if total else None


def main(directory: str, *names: str) -> int:
    """Prints the table; returns the exit status."""
    rows = [("", *(name if name != "version" else "transformers" for name in Report._fields))]
    status = 0
    for name in names:
        report = read(Path(directory, f"{name}.xml"))
        if report is None or report.failed or report.version == UNKNOWN:
            status = 1
        rows.append((name, *map(str, report or ("did not run", "-", "-", "-"))))
    for name, version, *counts in rows:
        sys.stdout.write(f"{name:<10}{version:<14}" + "".join(f"{count:>9}" for count in counts) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
