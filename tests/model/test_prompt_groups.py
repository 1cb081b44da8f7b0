"""GRPO and RLOO train on the rows of one prompt together, with the gradients of TRL."""

import types
import warnings

import datasets
import pytest
import torch

from quadrat import remove_padding
from quadrat.integration.prompt_groups import grouped
from support.families import DECODER, tiny_of
from support.padded_trainings import QUIET, differences

trl = pytest.importorskip("trl", reason="TRL is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
    from trl.trainer import grpo_trainer, rloo_trainer  # noqa: F401

    from support.online import reward, tokenizer


pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*experimental")
SETTINGS = DECODER | {"max_position_embeddings": 256, "use_cache": False, "num_hidden_layers": 1}
STEPS = {"max_steps": 3, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "num_generations": 8}


def trainer_of(name, folder, **options):
    """A trainer with prompts of 40 to 59 words and drawn completions of up to 15."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(0, 60, (40 + number % 20,), generator=draw).tolist() for number in range(16)]
    prompts = [" ".join(f"w{word}" for word in row) for row in rows]
    options = QUIET | STEPS | {"beta": 0.0, "max_completion_length": 16} | options
    args = getattr(trl, f"{name}Config")(str(folder), **options)
    draw.manual_seed(args.process_index)  # other completions in each process
    trainer = getattr(trl, f"{name}Trainer")(
        tiny_of("LlamaForCausalLM", SETTINGS),
        reward,
        args=args,
        train_dataset=datasets.Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer(),
    )

    def completions(self, prompt_ids, *_, **__):
        lengths = torch.randint(2, 15, (len(prompt_ids),), generator=draw).tolist()
        rows = [[*torch.randint(3, 60, (length,), generator=draw).tolist(), 2] for length in lengths]
        return (rows, None) if name == "GRPO" else rows

    trainer._generate_single_turn = types.MethodType(completions, trainer)
    trainer.steps = []
    compute = trainer.compute_loss

    def compute_loss(model, inputs, **kwargs):
        trainer.steps.append(inputs)
        return compute(model, inputs, **kwargs)

    trainer.compute_loss = compute_loss
    return trainer


def weights(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def fewest_tokens(batches):
    """The tokens of completions, and of each prompt once."""
    completions = sum(int(batch["completion_mask"].sum()) for batch in batches)
    rows = (pair for batch in batches for pair in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True))
    return completions + sum(map(len, {tuple(row[mask.bool()].tolist()) for row, mask in rows}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("GRPO", {"loss_type": loss}) for loss in ("dapo", "grpo", "dr_grpo", "cispo", "sapo", "vespo")),
        ("GRPO", {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
        ("GRPO", {"loss_type": "dapo", "steps_per_generation": 8}),
        ("GRPO", {"loss_type": "grpo", "num_iterations": 2}),
        ("RLOO", {}),
    ],
    ids=str,
)
def test_weights_are_those_of_trl(name, options, tmp_path):
    torch.manual_seed(0)
    expected = trainer_of(name, tmp_path, **options)
    start = weights(expected)
    expected.train()
    torch.manual_seed(0)
    trainer = trainer_of(name, tmp_path, **options)
    removed = remove_padding(trainer)
    trainer.train()
    assert max(differences(weights(expected), weights(trainer))) <= 1e-7
    assert max(differences(weights(expected), start)) > 1e-6
    assert "the rows of one prompt together" in str(removed)
    assert removed.shared > 0
    fewest = sum(fewest_tokens(trainer.steps[at : at + 4]) for at in range(0, len(trainer.steps), 4))
    real = sum(int(batch[f"{part}_mask"].sum()) for batch in trainer.steps for part in ("prompt", "completion"))
    passes = (removed.computed + removed.shared) / real  # one, and those without gradients
    assert removed.computed <= 1.1 * fewest * passes
    if name == "GRPO" and len(options) == 1:
        assert passes == 1


@pytest.mark.slow
def test_means_over_micro_batches_stay(tmp_path):
    trainer = trainer_of("GRPO", tmp_path, loss_type="bnpo")
    removed = remove_padding(trainer)
    assert "GRPOTrainer scatters the rows of one prompt over micro-batches: with loss_type='bnpo'" in removed.left[0]
    assert "_prepare_inputs" not in vars(trainer)


@pytest.mark.slow
def test_undo(tmp_path):
    trainer, other = trainer_of("GRPO", tmp_path), trainer_of("GRPO", tmp_path)
    with remove_padding(trainer):
        assert "_prepare_inputs" in vars(trainer)
        assert not remove_padding(trainer).left
        assert "_prepare_inputs" not in vars(other)
    assert "_prepare_inputs" not in vars(trainer)


def test_rows_are_grouped():
    ids = torch.tensor([[1, 5], [1, 6], [1, 5], [1, 7], [1, 6], [1, 7]])
    whole = {"prompt_ids": ids, "prompt_mask": torch.ones_like(ids), "advantages": torch.arange(6.0)}
    batches = [{name: value[at : at + 3] for name, value in whole.items()} for at in (0, 3)]
    for batch, names in zip(batches, ("abc", "def"), strict=True):
        batch |= {"names": list(names), "num_items_in_batch": torch.tensor(9), "images": None}
    assert grouped(batches) is batches
    for batch in batches:
        del batch["images"]
    first, second = grouped(batches)
    assert first["prompt_ids"].tolist() == [[1, 5], [1, 5], [1, 6]]
    assert second["prompt_ids"].tolist() == [[1, 6], [1, 7], [1, 7]]
    assert [*first["advantages"].tolist(), *second["advantages"].tolist()] == [0, 2, 1, 4, 3, 5]
    assert first["names"] + second["names"] == list("acbedf")
    assert first["num_items_in_batch"] == 9
