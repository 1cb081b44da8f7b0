"""`patch_trl`: trainers of TRL lose the same, step by step, with it and without; and what it puts where."""

import contextlib
import functools
import pickle
import sys
import warnings
from typing import Any

import datasets
import pytest
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, set_seed

import quadrat

trl = pytest.importorskip("trl", reason="TRL, whose trainers are patched, is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
    from trl.trainer import dpo_trainer, kto_trainer, reward_trainer, sft_trainer, utils

    import quadrat.trl as ours
    from support.online import QUIET, prompts, tokenizer


def tiny(cls: Any, **options: Any) -> Any:
    set_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return cls(LlamaConfig(vocab_size=64, num_key_value_heads=2, pad_token_id=1, **sizes, **options))


def rows(*names: str) -> datasets.Dataset:
    columns: dict[str, list[Any]] = {name: prompts(16, seed) for seed, name in enumerate(names)}
    return datasets.Dataset.from_dict(columns | ({"label": [True, False] * 8} if "completion" in names else {}))


RUNS = {
    "padded": ("SFT", {}),
    "packed": ("SFT", {"packing": True, "max_length": 16}),
    "wrapped": ("SFT", {"packing": True, "max_length": 16, "packing_strategy": "wrapped"}),
    "padding-free": ("SFT", {"padding_free": True, "max_length": None}),
    "completions": ("SFT", {"pad_to_multiple_of": 8}),
    "DPO": ("DPO", {"max_length": 9}),
    "reward": ("Reward", {}),
    "KTO": ("KTO", {}),
}
COLUMNS = {"SFT": ("text",), "DPO": ("prompt", "chosen", "rejected"), "KTO": ("prompt", "completion")}


def trainer_of(run: str, folder: Any, **others: Any) -> Any:
    name, options = RUNS[run]
    columns = ("prompt", "completion") if run == "completions" else COLUMNS.get(name, ("chosen", "rejected"))
    data = rows(*columns)
    data = data.remove_columns("label") if run == "completions" else data
    steps = {"max_steps": 3, "per_device_train_batch_size": 4, "logging_steps": 1, "dataloader_pin_memory": False}
    cls = LlamaForSequenceClassification if name == "Reward" else LlamaForCausalLM
    reference = {"ref_model": tiny(cls)} if name in ("DPO", "KTO") else {}
    return getattr(trl, f"{name}Trainer")(
        model=tiny(cls, **({"num_labels": 1} if name == "Reward" else {})),
        args=getattr(trl, f"{name}Config")(str(folder), **{**QUIET, **steps, **options, **others}),
        train_dataset=data,
        processing_class=tokenizer(),
        **reference,
    )


def trained(run: str, folder: Any) -> tuple[list[float], Any]:
    """The losses of a run, and its collator."""
    trainer = trainer_of(run, folder)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], trainer.data_collator


@pytest.mark.parametrize("run", RUNS)
def test_same_losses(run, tmp_path):
    expected, before = trained(run, tmp_path)
    with quadrat.trl.patch_trl():
        got, inside = trained(run, tmp_path)
    assert got == expected
    assert len(got) == 3
    assert type(before).__module__.startswith("trl.")
    if run != "KTO" or ours.kto is not None:
        assert type(inside).__module__.startswith("quadrat.trl.")


@pytest.mark.parametrize("patched", [False, True])
@pytest.mark.parametrize("run", ["DPO", "reward", "KTO"])
def test_token_budget(run, patched, tmp_path):
    """Completions count with their prompts, and each example is in one batch."""
    with quadrat.trl.patch_trl() if patched else contextlib.nullcontext():
        limit = {"max_length": 24} if run == "DPO" else {}
        trainer = trainer_of(run, tmp_path, max_steps=-1, num_train_epochs=1, **limit)
        data, collate = trainer.train_dataset, trainer.data_collator
        numbers = quadrat.batch_by_tokens(trainer, 80)
        batches = list(trainer.get_train_dataloader().dataset)
        whole = collate([data[row] for row in range(len(data))])
        trainer.train()
    assert numbers.changed
    assert numbers.rows == len(data)
    taken, tokens = [], 0
    for items in batches:
        rows = [dict(row) for row in items]
        batch = collate(rows)
        shapes = [value.shape for name, value in batch.items() if name.endswith("input_ids")]
        assert sum(shape.numel() for shape in shapes) <= 80
        taken += [str([row[name] for name in sorted(row) if name.endswith("ids")]) for row in rows]
        tokens += sum(shape.numel() for shape in shapes)
    columns = sorted(name for name in data.column_names if name.endswith("ids"))
    assert sorted(taken) == sorted(str([row[name] for name in columns]) for row in data)
    assert tokens < whole["input_ids"].numel() * len([name for name in whole if name.endswith("input_ids")])


def test_preferences_of_another_collator_need_lengths(tmp_path):
    """Their rows are tokenized, and what a wrapped collator makes of them is not known."""
    trainer = trainer_of("DPO", tmp_path)
    data = trainer.train_dataset
    trainer.data_collator = functools.partial(trainer.data_collator)
    with pytest.raises(ValueError, match=r"'prompt_ids'.* and partial joins them in its own way; give .* lengths="):
        quadrat.batch_by_tokens(trainer, 80)
    sizes = [2 * (len(row["prompt_ids"]) + max(len(row["chosen_ids"]), len(row["rejected_ids"]))) for row in data]
    assert quadrat.batch_by_tokens(trainer, max(sizes), lengths=sizes).changed


NAMES = [
    (sft_trainer, "DataCollatorForLanguageModeling", ours.sft),
    (dpo_trainer, "DataCollatorForPreference", ours.dpo),
    (reward_trainer, "DataCollatorForPreference", ours.reward),
    *([] if ours.kto is None else [(kto_trainer, "DataCollatorForUnpairedPreference", ours.kto)]),
]


def holders() -> dict[tuple[str, str], Any]:
    """What the modules of TRL have under the names that are patched."""
    names = {"pad", *(name for _, name, _ in NAMES), "DataCollatorForTriplePreference"}
    return {
        (name, key): value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "trl"
        for key, value in list(vars(module).items())
        if key in names
    }


def test_the_names_lead_to_quadrat_until_it_is_undone():
    before = holders()
    with quadrat.trl.patch_trl() as patch:
        for module, name, twin in NAMES:
            assert getattr(module, name) is getattr(twin, name)
            assert issubclass(getattr(module, name), twin.Original)
        assert utils.pad is sft_trainer.pad is ours.pad
        assert {value for (_, name), value in holders().items() if name == "pad"} == {ours.pad}
        with quadrat.trl.patch_trl():
            pass
        assert utils.pad is ours.pad
        patch.undo()
    assert {place: value for place, value in holders().items() if place in before} == before
    with pytest.raises(RuntimeError, match=r"call quadrat.trl.patch_trl\(\) for a new one"):
        patch.__enter__()


def test_modules_that_are_loaded_meanwhile(monkeypatch):
    name = "trl.trainer.rloo_trainer"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with warnings.catch_warnings(), quadrat.trl.patch_trl():
        warnings.simplefilter("ignore")
        module = __import__(name, fromlist=["pad"])
        assert module.pad is ours.pad
    assert module.pad is utils.pad is ours.padding.Original


def test_originals_pickle_while_patched():
    for _, _, twin in NAMES:
        original = twin.Original(pad_token_id=0)
        with quadrat.trl.patch_trl():
            assert type(pickle.loads(pickle.dumps(original))) is twin.Original
        assert type(pickle.loads(pickle.dumps(original))) is twin.Original
