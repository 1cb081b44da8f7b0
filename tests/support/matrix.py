"""The end of `make matrix`: one line for each environment, from the reports that pytest wrote.

    python tests/support/matrix.py DIRECTORY NAME... [--record]

Exits with 1 where a test failed, and where an environment has no report or ran no test. With `--record`, and if none
failed, what ran is recorded: docs/compatibility.json, and what is written from it, the table in docs/compatibility.md
and python/quadrat/installed/tested.json.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
RECORD = Path("docs", "compatibility.json")
PAGE = Path("docs", "compatibility.md")
TESTED = Path("python", "quadrat", "installed", "tested.json")
BEGIN, END = "<!-- from compatibility.json -->\n", "<!-- end -->\n"

PACKAGES = ("transformers", "torch", "numpy", "datasets", "pyarrow", "tokenizers")
CODE = "code: "  # begins the names of properties that are fingerprints
TRL = "trl."  # begins the names of code of TRL, and `trl-` those of environments that only tell of it
UNKNOWN = "?"


class Report(NamedTuple):
    """What a run of pytest came to; the properties are what tests/conftest.py recorded."""

    passed: int
    failed: int
    skipped: int
    files: int
    properties: dict[str, str]

    @property
    def version(self) -> str:
        return self.properties.get("transformers", UNKNOWN)


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
    properties = {entry.get("name", ""): entry.get("value", "") for entry in tree.iter("property")}
    files = {part for case in tree.iter("testcase") for part in case.get("classname", "").split(".") if "test_" in part}
    failed = failures + errors
    return Report(total - failed - skipped, failed, skipped, len(files), properties) if total else None


def recorded(before: dict[str, Any], reports: dict[str, Report], names: tuple[str, ...]) -> dict[str, Any]:
    """The record with these reports in place of earlier ones of the same name, for environments in this order."""
    entries = dict(before.get("environments", {}))
    for name, report in reports.items():
        if name.startswith("trl-"):
            continue
        of = report.properties
        entries[name] = {
            **{key: of[key] for key in ("python", "platform", *PACKAGES)},
            "passed": report.passed,
            "skipped": report.skipped,
            "files": report.files,
            "examples": int(of["examples"]),
        }
    environments = {name: entries[name] for name in names if name in entries}
    ran = {report.version for name, report in reports.items() if not name.startswith("trl-")}
    kept = {environment["transformers"] for environment in environments.values()} - ran
    trl = {report.properties.get("trl") for report in reports.values()}
    code: dict[str, dict[str, set[str]]] = {}
    for name, hashes in before.get("code", {}).items():
        for digest, versions in hashes.items():
            still = set(versions) - trl if name.startswith(TRL) else kept.intersection(versions)
            code.setdefault(name, {}).setdefault(digest, set()).update(still)
    for environment, report in reports.items():
        for key, value in report.properties.items():
            name = key.removeprefix(CODE)
            if key.startswith(CODE) and (name.startswith(TRL) or not environment.startswith("trl-")):
                version = report.properties["trl"] if name.startswith(TRL) else report.version
                code.setdefault(name, {}).setdefault(value, set()).add(version)
    return {
        "environments": environments,
        "code": {
            name: {
                digest: sorted(versions, key=number)
                for digest, versions in sorted(code[name].items(), key=_first)
                if versions
            }
            for name in sorted(code)
        },
    }


def _first(item: tuple[str, set[str]]) -> tuple[tuple[int, ...], str]:
    return min(map(number, item[1]), default=()), item[0]


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def ranges(record: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The oldest and the newest version of each package that the tests ran with, by their first two numbers."""
    spans = {}
    for package in PACKAGES:
        versions = sorted((environment[package] for environment in record["environments"].values()), key=number)
        oldest, newest = (".".join(version.split(".")[:2]) for version in (versions[0], versions[-1]))
        spans[package] = oldest, newest
    hashes = [hashes for name, hashes in record["code"].items() if name.startswith(TRL)]
    trl = {".".join(version.split(".")[:2]) for entry in hashes for versions in entry.values() for version in versions}
    if trl:
        spans["trl"] = min(trl, key=number), max(trl, key=number)
    return spans


def table(record: dict[str, Any]) -> str:
    columns = ("environment", *PACKAGES, "Python", "files", "examples", "passed", "skipped")
    rows = [columns, ("---",) * (len(PACKAGES) + 2) + ("---:",) * 4]
    for name, environment in record["environments"].items():
        counts = [str(environment[count]) for count in ("files", "examples", "passed", "skipped")]
        rows.append((name, *(environment[package] for package in PACKAGES), environment["python"], *counts))
    platforms = sorted({environment["platform"] for environment in record["environments"].values()})
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    tested = [f"- {package}: {oldest} to {newest}" for package, (oldest, newest) in ranges(record).items()]
    return "\n".join([*lines, "", f"Platform: {', '.join(platforms)}. The tested ranges are", "", *tested, ""])


def tested(record: dict[str, Any]) -> str:
    """The data of `quadrat.installed.config`, one name a line."""
    parts = {"ranges": ranges(record), "fingerprints": {name: list(hashes) for name, hashes in record["code"].items()}}
    lines = [
        f'"{part}": {{\n' + ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in values.items()) + "\n}"
        for part, values in parts.items()
    ]
    return "{" + ",\n".join(lines) + "}\n"


def write(record: dict[str, Any], root: Path = ROOT) -> None:
    (root / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    page = (root / PAGE).read_text()
    before, _, rest = page.partition(BEGIN)
    (root / PAGE).write_text(before + BEGIN + table(record) + END + rest.partition(END)[2])
    (root / TESTED).write_text(tested(record))


def main(directory: str, *arguments: str) -> int:
    names = tuple(name for name in arguments if name != "--record")
    rows = [("", "transformers", "passed", "failed", "skipped")]
    reports = {}
    for name in names:
        report = read(Path(directory, f"{name}.xml"))
        if report is not None and not report.failed and report.version != UNKNOWN:
            reports[name] = report
        shown = ("did not run", "-", "-", "-") if report is None else (report.version, *map(str, report[:3]))
        rows.append((name, *shown))
    for name, version, *counts in rows:
        sys.stdout.write(f"{name:<10}{version:<14}" + "".join(f"{count:>9}" for count in counts) + "\n")
    status = int(len(reports) < len(names))
    if "--record" in arguments and status == 0:
        path = ROOT / RECORD
        before = json.loads(path.read_text()) if path.exists() else {}
        write(recorded(before, reports, (*dict.fromkeys((*before.get("environments", {}), *names)),)))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
