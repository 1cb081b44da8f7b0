"""Every Python snippet of README.md and docs/ runs as it is printed, or says why it does not."""

import importlib.util
import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import set_seed

import quadrat
from support import standins
from support.isolated import in_two, launch
from support.pages import ROOT, pages, snippets
from support.two_processes import PAGE_LENGTHS, page, resumed_page

# Its snippets are also compared with what they give without quadrat.
ELSEWHERE = {"docs/recipes.md": "tests/integration/test_recipes.py"}
PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
RUN = [
    name
    for name, page in PAGES.items()
    if name not in ELSEWHERE and any(snippet.reason is None for snippet in snippets(page))
]
OPTIONAL = {"trl"}
LANGUAGES = {"", "console", "diff", "python", "text", "toml", "yaml"}
# What the installed libraries say about each other, and about machines without a GPU.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standins.save_hub(tmp_path_factory.mktemp("hub"))


@pytest.fixture
def surroundings(page: str, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A page runs in a folder with the models that it names, from one seed. Its patches are undone after it."""
    for owner in hub.iterdir():
        (tmp_path / owner.name).symlink_to(owner)
    monkeypatch.chdir(tmp_path)
    if page == "docs/how-to/lightning.md" and importlib.util.find_spec("lightning") is None:
        lightning = types.ModuleType("lightning")  # of whose class the snippets use nothing
        vars(lightning)["LightningDataModule"] = object
        monkeypatch.setitem(sys.modules, "lightning", lightning)
    set_seed(0)
    with standins.undone(monkeypatch):
        yield


@pytest.mark.parametrize("page", RUN)
@pytest.mark.usefixtures("surroundings")
def test_snippets_run_as_printed(page: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    missing = set()
    for snippet in snippets(PAGES[page]):
        if snippet.reason is None:
            try:
                snippet.run(names)
            except ModuleNotFoundError as error:
                if error.name not in OPTIONAL:
                    raise
                missing.add(error.name)
    if page == "docs/padding-free.md":
        assert torch.equal(names["back"], names["hidden"])
        names["back"].sum().backward()
    if missing:
        pytest.skip(f"some snippets need {', '.join(missing)}, which is not installed; the others ran")


@pytest.mark.parametrize("page", PAGES)
def test_code_names_its_language(page: str) -> None:
    """Python under another name would not run."""
    fences = re.findall(r"^```(.*)$", PAGES[page].read_text(encoding="utf-8"), re.MULTILINE)
    assert set(fences[::2]) <= LANGUAGES
    assert set(fences[1::2]) <= {""}


def test_pages_are_short() -> None:
    """At most this many words, as `wc -w` counts them. The changelog grows with each release and has no limit."""
    limits = {"README.md": 900, "CONTRIBUTING.md": 1200, "docs/architecture.md": 1100, "docs/releasing.md": 400}
    limits["CHANGELOG.md"] = 10**9
    words = {page: len(path.read_text(encoding="utf-8").split()) for page, path in PAGES.items()}
    assert {page: count for page, count in words.items() if count > limits.get(page, 1800)} == {}


SOURCES = [
    f"/{path.relative_to(ROOT).as_posix()}"
    for folder in ("python", "csrc", "tests", "benchmarks", "examples", "cmake")
    for path in (ROOT / folder).rglob("*.*")
]


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", PAGES[page].read_text(encoding="utf-8"))
    named = set(re.findall(r"`([\w/]+/\w+\.(?:py|cpp|hpp|cuh?|cmake|txt))`", text))
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in SOURCES)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("epoch", [0, 1])
def test_accelerate_resumes_as_the_page_says(epoch: int, processes: int, hub: Path, tmp_path: Path) -> None:
    """A run that is killed in an epoch, and the next run, train on the batches that the sampler has for each epoch."""
    (tmp_path / "google-bert").symlink_to(hub / "google-bert")
    sampler = quadrat.TokenBudgetBatchSampler(PAGE_LENGTHS, 64, world_size=processes, rank=None)
    steps = len(sampler) // processes
    trained: dict[int, list[list[int]]] = {0: [], 1: []}
    for killed_before in (epoch * steps + 5, None):
        done = launch(resumed_page, tmp_path, killed_before, processes=processes)
        assert (done.returncode == 0) == (killed_before is None), done.stderr
        for rank in range(processes):
            seen = json.loads((tmp_path / f"seen-{rank}.json").read_text())
            # The page stores a checkpoint after each second batch: the fifth of an epoch comes again.
            for number, rows in seen[: None if killed_before is None else killed_before - 1]:
                trained[number].append(rows)
    for number, batches in trained.items():
        assert sorted(batches) == sorted(sampler.batches(number).to_lists())


@pytest.mark.slow
def test_accelerate_with_two_processes(hub: Path, tmp_path: Path) -> None:
    """All batches of a stream on one of two processes each, and predictions for all rows on both."""
    (tmp_path / "google-bert").symlink_to(hub / "google-bert")
    first, second = in_two(page, tmp_path)
    assert first["predictions"] == second["predictions"]
    assert len(first["predictions"]) == first["rows"]
    assert len(first["streamed"]) == len(second["streamed"]) > 1
    shapes = [*first["streamed"], *second["streamed"]]
    assert sum(rows for rows, _ in shapes) >= first["rows"]
    assert max(rows * width for rows, width in shapes) <= 64
