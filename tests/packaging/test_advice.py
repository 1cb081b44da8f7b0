"""What messages name exists: options, classes, functions, flags and pages, and where the user stands."""

import argparse
import ast
import builtins
import importlib
import inspect
import json
import pkgutil
import re
import tempfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
import trl
from torch.utils.data import DataLoader

import quadrat
from quadrat.__main__ import _parser
from support.strategies import make_tokenizer
from support.trainer import arguments, tiny

PACKAGE, PAGES = Path(quadrat.__file__).parent, Path(__file__).parents[2]
# Of other libraries, what messages speak of.
CLASSES = [
    transformers.PreTrainedTokenizerFast, transformers.BatchEncoding, transformers.PreTrainedModel,
    transformers.PretrainedConfig, transformers.Trainer, transformers.TrainingArguments, trl.SFTTrainer, trl.GRPOConfig,
    DataLoader, datasets.Dataset, torch.Tensor, np.ndarray, np.ma.MaskedArray,
]  # fmt: skip
MODULES = [builtins, np, torch, torch.utils.data, torch.autograd.forward_ad, torch.jit, datasets, transformers, trl]
# Names of no code: objects in the user's hands, an option of docker's, a keyword argument of a tokenizer, and words.
OTHERS = {"tokenizer", "collator", "shm-size", "size", "tokenizer_object"}
OTHERS |= {"dimension", "FlashAttention", "NumPy", "NaN", "RoPE"}
OTHERS |= {"watch.report"}  # called in a process that is started
OTHERS |= {"TruncationStrategy"}  # in lines of transformers


def found(name: str) -> Any:
    """What a dotted name stands for; None if there is nothing."""
    one, *rest = name.split(".")
    value = {"quadrat": quadrat}.get(one) or next(
        (getattr(m, one) for m in [quadrat, *MODULES] if hasattr(m, one)), None
    )
    for part in rest:
        value = getattr(value, part, None)
    return value


def options_of(value: Any) -> set[str]:
    try:
        return set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return set()


def messages():
    """The texts in the source of the package that are no docstrings: where each stands, and the text."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        nodes = [tree]
        while nodes:
            node = nodes.pop()
            children = list(ast.iter_child_nodes(node))
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                children = [part for part in children if not isinstance(part, ast.Constant)]
            else:
                text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if " " in text and " -> " not in text:  # the signatures of operators
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", text
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                children.remove(node.body[0])
            nodes += children


@pytest.fixture(scope="module")
def known():
    """Options and other names of quadrat, and of what messages speak of in other libraries."""
    modules = [
        m.name for m in pkgutil.walk_packages([str(PACKAGE)], "quadrat.") if not m.name.startswith("quadrat.cli")
    ]
    own = [importlib.import_module(name) for name in modules if "__main__" not in name]
    public = [found(name) for name in json.loads((PAGES / "docs" / "signatures.json").read_text())]
    values = [*CLASSES, *public]
    methods = [getattr(value, name, None) for value in values if inspect.isclass(value) for name in dir(value)]
    options = set().union(*map(options_of, [*values, *methods]))
    special = transformers.PreTrainedTokenizerFast.SPECIAL_TOKENS_ATTRIBUTES
    options |= set(special)
    names = set().union(*map(dir, [*values, *MODULES, *own]), special, (f"{name}_id" for name in special))
    commands = next(one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction)).choices.values()
    flags = {flag for command in commands for one in command._actions for flag in one.option_strings}
    return options, names, flags


def unknown(text: str, known: Any) -> list[str]:
    """What a message names that does not exist."""
    options, names, flags = known
    named = [name for name in re.findall(r"(?<![\w.])([a-z_]+)=(?!=)", text) if name not in options]
    words = re.findall(r"\b((?:[A-Z][a-z]+){2,}\w*|[A-Z]+[a-z]+[A-Z]\w*)\b|(?<![\w.{}])([a-z_][\w.]*)\(", text)
    named += [name for pair in words for name in pair if name and name.rpartition(".")[2] not in names]
    named += [name for name in re.findall(r"\btokenizer\.(\w+)", text) if name not in names]
    named += [name for name in re.findall(r"\bquadrat(?:\.\w+)+", text) if found(name) is None]
    named += [flag[2:] for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text) if flag not in flags]
    named += [page for page in re.findall(r"docs/[\w/-]+\.md", text) if not (PAGES / page).exists()]
    return [name for name in named if name not in OTHERS]


def test_what_messages_name_exists(known):
    wrong = {where: names for where, text in messages() if (names := unknown(text, known))}
    assert not wrong


def test_what_does_not_exist_is_found(known):
    text = "give padded_side='left', use LayoutLMCollator, call quadrat.pad_all(rows) or --maximum, see docs/none.md"
    names = ["padded_side", "LayoutLMCollator", "quadrat.pad_all", "quadrat.pad_all", "maximum", "docs/none.md"]
    assert unknown(text, known) == names
    assert not unknown("give padding_side='left', call quadrat.pad(rows), or --max-tokens; docs/index.md", known)


ROWS = [{"input_ids": [5] * length} for length in (3, 9, 20)]


def by_tokens(*given: Any, **options: Any) -> Any:
    model = tiny(transformers.BertForSequenceClassification)
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    args = arguments(tempfile.mkdtemp(), per_device_train_batch_size=2)
    trainer = transformers.Trainer(model, args, train_dataset=ROWS, data_collator=collator)
    return quadrat.batch_by_tokens(trainer, *given, **options)


REFUSED = [
    (quadrat.batch_by_tokens, lambda: by_tokens(8)),
    (quadrat.TokenBudgetBatchSampler, lambda: quadrat.TokenBudgetBatchSampler(ROWS, 8)),
    (quadrat.TokenBudgetBatchSampler, lambda: quadrat.TokenBudgetBatchSampler(ROWS, 8, multiple_of=16)),
    (quadrat.batching.plan_packs, lambda: quadrat.batching.plan_packs(ROWS, 8)),
    (quadrat.PackedDataset, lambda: quadrat.PackedDataset(ROWS, 8)),
    (quadrat.data.PackedStream, lambda: list(quadrat.data.PackedStream(ROWS, 8))),
    (quadrat.BatchedStream, lambda: list(quadrat.BatchedStream(ROWS, 8))),
    (quadrat.DataCollatorWithFlattening, lambda: quadrat.DataCollatorWithFlattening()([
        {"input_ids": ["a"], "seq_lengths": [1]}
    ])),
    (quadrat.pad, lambda: quadrat.pad([[1], [2.5]])),
    (quadrat.flatten, lambda: quadrat.flatten([[1], [2.5]])),
    (quadrat.Ragged.from_rows, lambda: quadrat.Ragged.from_rows([[1], [2.5]])),
]  # fmt: skip


@pytest.mark.parametrize(("caller", "call"), REFUSED)
def test_options_that_errors_name_are_those_of_the_caller(caller, call):
    with pytest.raises((TypeError, ValueError)) as raised:
        call()
    said = str(raised.value)
    for name, options in re.findall(r"([\w.]+)\(([^()]*)\)", said):  # those of another function are its own
        if (other := found(name)) is not None:
            assert set(re.findall(r"(\w+)=", options)) <= options_of(other), said
            said = said.replace(options, "")
    assert set(re.findall(r"(?<![\w.])([a-z_]+)=", said)) <= options_of(caller) | {"padded"}, said
