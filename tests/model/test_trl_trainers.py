"""TRL's trainers train the same without padding: weights after four steps, from the real tokens alone."""

import types
import warnings

import datasets
import pytest

from support.families import DECODER, tiny_of
from support.padded_trainings import QUIET, assert_trains_the_same, rows_of

trl = pytest.importorskip("trl", reason="TRL is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
    from trl.trainer import dpo_trainer, grpo_trainer, kto_trainer, reward_trainer, rloo_trainer, sft_trainer  # noqa: F401

    from support.online import reward, tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*experimental"),
]
COLUMNS = {
    "SFT": ("text",),
    "DPO": ("prompt", "chosen", "rejected"),
    "KTO": ("prompt", "completion"),
    "Reward": ("chosen", "rejected"),
    "GRPO": ("prompt",),
    "RLOO": ("prompt",),
}
ONLINE = {"num_generations": 2, "max_completion_length": 16, "beta": 0.0, "gradient_accumulation_steps": 2}


def texts(seed):
    return [" ".join(f"w{token}" for token in row) for row in rows_of(32, seed=seed)]


def trainer_of(name, folder, lora=False, reference=True, **options):
    columns = {column: texts(seed) for seed, column in enumerate(COLUMNS[name])}
    if name == "KTO":
        columns["label"] = [True, False] * 16
    cls = "LlamaForSequenceClassification" if name == "Reward" else "LlamaForCausalLM"
    settings = DECODER | {"num_labels": 1, "use_cache": False}
    arguments = {
        "args": getattr(trl, f"{name}Config")(
            str(folder), **QUIET | (ONLINE if name in {"GRPO", "RLOO"} else {}) | options
        ),
        "train_dataset": datasets.Dataset.from_dict(columns),
        "processing_class": tokenizer(),
    }
    if lora:
        from peft import LoraConfig

        arguments["peft_config"] = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights="gaussian")
    if name in {"DPO", "KTO"} and reference:
        arguments["ref_model"] = tiny_of(cls, settings)
    if name not in {"GRPO", "RLOO"}:
        model = tiny_of(cls, settings)
        if not reference and not lora:
            model.save_pretrained(folder)
            model.config._name_or_path = str(folder)  # from which the trainer loads its reference
        return getattr(trl, f"{name}Trainer")(model, **arguments)
    trainer = getattr(trl, f"{name}Trainer")(tiny_of(cls, settings), reward, **arguments)
    drawn = iter(rows_of(1000, seed=7))

    def completions(self, prompt_ids, *_, **__):
        rows = [[*next(drawn), 2] for _ in prompt_ids]
        return (rows, None) if name == "GRPO" else rows

    trainer._generate_single_turn = types.MethodType(completions, trainer)
    return trainer


@pytest.mark.parametrize("checkpoints", [False, True], ids=["", "gradient checkpointing"])
@pytest.mark.parametrize("name", COLUMNS)
def test_trainer(name, checkpoints, tmp_path):
    def build():
        return trainer_of(name, tmp_path, gradient_checkpointing=checkpoints)

    assert_trains_the_same(build, times=(1, 2) if checkpoints else (1,))


@pytest.mark.parametrize("checkpoints", [False, True], ids=["", "gradient checkpointing"])
@pytest.mark.parametrize("lora", [False, True], ids=["", "LoRA"])
def test_dpo_without_a_reference_model(lora, checkpoints, tmp_path):
    """The trainer loads the model once more, or switches its adapter off."""

    def build():
        return trainer_of("DPO", tmp_path, lora=lora, reference=False, gradient_checkpointing=checkpoints)

    assert_trains_the_same(build, times=(1, 2) if lora or checkpoints else (1,))


@pytest.mark.parametrize("name", ["SFT", "GRPO", "Reward"])
def test_lora(name, tmp_path):
    assert_trains_the_same(lambda: trainer_of(name, tmp_path, lora=True, gradient_checkpointing=False))
