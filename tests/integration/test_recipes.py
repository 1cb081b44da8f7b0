"""docs/recipes.md: each snippet runs as it is printed, and gives the same without quadrat."""

import ast
import gc
import importlib.util
import logging
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import DataCollatorForSeq2Seq, Wav2Vec2FeatureExtractor, set_seed

import quadrat
from support import llama_factory, standins
from support.compare import assert_same_batch, frozen
from support.pages import snippets

PACKAGE = Path(quadrat.__file__).parent
LLAMA_FACTORY = "LLaMA-Factory 1"
PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
# What these versions of the libraries say of each other, and of machines without a GPU.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:sklearn"),
]


def by_heading() -> dict[str, str]:
    """The snippets of the page by heading, numbered."""
    text, codes = PAGE.read_text().splitlines(), {}
    for snippet in snippets(PAGE):
        heading = next(line[3:] for line in reversed(text[: snippet.line]) if line.startswith("## "))
        number = sum(title.startswith(heading) for title in codes) + 1
        codes[f"{heading} {number}"] = snippet.code
    return codes


SNIPPETS = by_heading()
# The module of quadrat that does a snippet's work.
WORKS = {
    "TRL 1": "trl/sft.py",
    "LLaMA-Factory 1": "collators/padding.py",
    "A collator of your own 1": "planning/padded.py",
    "Speech recognition 1": "ops/pad.py",
    "sentence-transformers and SetFit 1": "planning/conversion.py",
    "sentence-transformers and SetFit 2": "planning/conversion.py",
    "Prompts on the left, completions on the right 1": "ops/pad.py",
    "Pipelines 1": "planning/conversion.py",
}


def without_quadrat(code: str) -> str:
    """The snippet as it was before somebody added quadrat."""
    code = re.sub(r"^quadrat\.patch_\w+\(\)\n", "", code, flags=re.MULTILINE)
    code = code.replace("quadrat.DataCollatorForSeq2Seq", "__import__('transformers').DataCollatorForSeq2Seq")
    return re.sub(r"^import quadrat\n", "", code, flags=re.MULTILINE)


def packages(code: str) -> set[str]:
    """What the snippet imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    return standins.save_hub(tmp_path_factory.mktemp("hub"))


@pytest.fixture
def patches(monkeypatch):
    with standins.undone(monkeypatch) as instances:
        yield instances


@pytest.fixture
def run(hub, tmp_path, monkeypatch, patches, caplog):
    """Runs code in a folder of its own, from the same seed, and undoes its patches.

    It gives what the code leaves behind, by name, and the files of quadrat whose functions were called.
    """

    def run_in(folder: str, code: str) -> tuple[dict[str, Any], set[str]]:
        shutil.copytree(hub, tmp_path / folder)
        monkeypatch.chdir(tmp_path / folder)
        caplog.clear()
        set_seed(0)
        names: dict[str, Any] = {"__name__": "__main__"}
        gc.collect()  # which calls quadrat where a tokenizer goes
        called: set[str] = set()
        with caplog.at_level(logging.DEBUG, "quadrat"):
            sys.setprofile(lambda frame, event, value: called.add(frame.f_code.co_filename))
            try:
                exec(compile(code, f"{PAGE.name}: {folder}", "exec"), names)
            finally:
                sys.setprofile(None)
        while patches:
            patches.pop().undo()
        assert [record.message for record in caplog.records if record.name == "quadrat"] == [], "it fell back"
        return names, {str(path.relative_to(PACKAGE)) for path in map(Path, called) if path.is_relative_to(PACKAGE)}

    return run_in


def older_trl() -> bool:
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    return "completion_only_loss" in DataCollatorForLanguageModeling.__dataclass_fields__


def given(names: dict[str, Any]) -> dict[str, Any]:
    """What a snippet gives: its tensors, lists and mappings, and the weights of what it trained."""
    values: dict[str, Any] = {}
    for name, value in names.items():
        model = getattr(value, "model_body", getattr(value, "model", value))  # of SetFit, of a trainer
        if isinstance(model, nn.Module):
            values[name] = {key: frozen(weight) for key, weight in model.state_dict().items()}
        elif name != "__builtins__" and isinstance(value, (Mapping, list, torch.Tensor, np.ndarray)):
            values[name] = frozen(value)
    return values


@pytest.mark.parametrize("title", [title for title in SNIPPETS if title != LLAMA_FACTORY])
def test_recipes_give_what_they_gave(title, run):
    code = SNIPPETS[title]
    for package in packages(code):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package}, which the recipe is about, is not installed")
    check(code, WORKS[title], run)


def check(code, module, run):
    """This module of quadrat does a snippet's work, which gives what it gives without quadrat."""
    names, worked = run("with", code)
    assert module in worked
    before = without_quadrat(code)
    if "quadrat" in before:  # it is about functions of quadrat
        return
    names_before, worked = run("without", before)
    assert not worked
    assert given(names)
    assert given(names) == given(names_before)


def test_a_collator_instead_of_a_patch(run):
    pytest.importorskip("trl", reason="TRL, whose trainer gets the collator, is not installed")
    if older_trl():
        pytest.skip("the installed TRL makes labels while it collates, as the page says")
    tokenizer = "__import__('transformers').AutoTokenizer.from_pretrained('Qwen/Qwen2.5-0.5B')"
    collator = f"    data_collator=quadrat.DataCollatorForSeq2Seq({tokenizer}),\n"
    code = (
        SNIPPETS["TRL 1"]
        .replace("quadrat.trl.patch_trl()\n", "")
        .replace("    train_dataset", f"{collator}    train_dataset")
    )
    check(code, "collators/padding.py", run)


def test_prompts_and_completions(run):
    utils = pytest.importorskip("trl.trainer.utils", reason="TRL, whose pad it is compared with, is not installed")
    ours, _ = run("with", SNIPPETS["Prompts on the left, completions on the right 1"])
    for name, side in (("prompt", "left"), ("completion", "right")):
        rows = [torch.tensor(ids) for ids in ours[f"{name}s"]]
        ids, mask = (
            utils.pad(each, padding_value=0, padding_side=side) for each in (rows, list(map(torch.ones_like, rows)))
        )
        assert_same_batch(ids, ours[f"{name}_ids"], name)
        assert_same_batch(mask, ours[f"{name}_mask"], name)
    shown = re.search(r"`input_ids` is `(.*?)`", PAGE.read_text())
    assert ours["input_ids"].tolist() == ast.literal_eval(shown[1])


def test_speech(run):
    names, _ = run("with", SNIPPETS["Speech recognition 1"])
    features, batch = names["features"], names["batch"]
    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=True)
    clips = [{"input_values": feature["input_values"]} for feature in features]
    expected = extractor.pad(clips, return_tensors="pt")
    assert torch.equal(batch["input_values"], expected["input_values"].bfloat16())
    assert torch.equal(batch["attention_mask"], expected["attention_mask"].long())
    padded = DataCollatorForSeq2Seq(standins.encoder_tokenizer())(
        [{"input_ids": labels, "labels": labels} for labels in (feature["labels"] for feature in features)]
    )
    assert torch.equal(batch["labels"], padded["labels"])


def test_llama_factory(run, tmp_path, monkeypatch):
    """The package is hard to install: collators like its own stand in for it."""
    start = tmp_path / "site" / "llamafactory" / "train" / "tuner.py"
    start.parent.mkdir(parents=True)
    shutil.copy(Path(llama_factory.__file__), start)
    monkeypatch.syspath_prepend(tmp_path / "site")
    code, weights = SNIPPETS[LLAMA_FACTORY], []
    for folder, given_code in (("with", code), ("without", without_quadrat(code))):
        for name in ("llamafactory.train.tuner", "llamafactory.train", "llamafactory"):
            sys.modules.pop(name, None)
        names, worked = run(folder, given_code)
        trainers = names["run_exp"].__globals__["done"]
        assert len(trainers) == 3
        for trainer in trainers.values():
            assert isinstance(trainer.data_collator, quadrat.DataCollatorForSeq2Seq) == (folder == "with")
        assert (WORKS[LLAMA_FACTORY] in worked) == (folder == "with")
        weights.append(given(trainers))
    assert weights[0] == weights[1]
    for name in ("llamafactory.train.tuner", "llamafactory.train", "llamafactory"):
        sys.modules.pop(name, None)


def test_every_snippet_is_known():
    assert list(WORKS) == list(SNIPPETS)
