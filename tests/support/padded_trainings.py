"""Trainings of tiny models in float64, with the tokens that each of their linear layers computes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from quadrat import remove_padding

QUIET: dict[str, Any] = {
    **{"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False},
    **{"dataloader_pin_memory": False, "max_steps": 4, "per_device_train_batch_size": 4, "logging_steps": 1},
    **{"optim": "sgd", "learning_rate": 0.05, "lr_scheduler_type": "constant", "max_grad_norm": 1e9},
}


def rows_of(count: int, *, longest: int = 14, seed: int = 0) -> list[list[int]]:
    """Rows of ids of drawn lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest, (count,), generator=generator).tolist()
    return [torch.randint(5, 60, (length,), generator=generator).tolist() for length in lengths]


def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows padded on the right with 0, their labels with -100; choices of a row side by side."""
    width = max(len(ids) for feature in features for ids in _choices(feature["input_ids"]))
    batch = {}
    for name, value in features[0].items():
        if isinstance(value, int):
            batch[name] = torch.tensor([feature[name] for feature in features])
            continue
        filling = -100 if name == "labels" else 0
        rows = [[ids + [filling] * (width - len(ids)) for ids in _choices(feature[name])] for feature in features]
        batch[name] = torch.tensor(rows if isinstance(value[0], list) else [row[0] for row in rows])
    return batch


def _choices(ids: list[Any]) -> list[list[int]]:
    return ids if isinstance(ids[0], list) else [ids]


class Tokens:
    """The real tokens of the batches that a model trains on, and those that its linear layers compute."""

    def __init__(self, model: nn.Module) -> None:
        self.real = 0
        self.computed: dict[str, int] = {}
        model.register_forward_pre_hook(self._called, with_kwargs=True)
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and "score" not in name:  # of each hidden state, of which it takes one
                module.register_forward_hook(self._computed(name))

    def _called(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            self.real += int(kwargs["attention_mask"].sum())

    def _computed(self, name: str) -> Callable[..., None]:
        def count(module: Any, args: tuple[Any, ...], output: Any) -> None:
            if torch.is_grad_enabled() and args[0].dim() == 3:  # others are of whole rows
                self.computed[name] = self.computed.get(name, 0) + args[0][..., 0].numel()

        return count


def trained(build: Callable[[], Any], *, removes: bool) -> tuple[dict[str, Any], Any, Tokens]:
    """The weights of a trainer after its steps, what was removed of its padding, and the tokens of its model."""
    torch.manual_seed(0)
    trainer = build()
    tokens = Tokens(trainer.model)
    removed = remove_padding(trainer) if removes else None
    trainer.train()
    return weights(trainer.model), removed, tokens


def weights(model: nn.Module) -> dict[str, Any]:
    """Copies of all parameters; of those that are sharded, the whole."""
    whole = {name: getattr(part, "full_tensor", lambda part=part: part)() for name, part in model.named_parameters()}
    return {name: tensor.detach().clone() for name, tensor in whole.items()}


def differences(state: dict[str, Any], other: dict[str, Any]) -> Iterator[float]:
    """The largest difference of each weight."""
    assert list(state) == list(other)
    yield from (float((state[name] - other[name]).detach().abs().max()) for name in state)


def assert_trains_the_same(build: Callable[[], Any], *, left: bool = False, times: tuple[int, ...] = (1,)) -> None:
    """Four steps give the same weights without padding, from real tokens alone; with left, the model is left alone.

    times: how often linear layers compute a token.
    """
    expected, _, padded = trained(build, removes=False)
    got, removed, tokens = trained(build, removes=True)
    assert max(differences(expected, got)) <= 1e-7
    torch.manual_seed(0)
    assert max(differences(expected, weights(build().model))) > 1e-6
    assert tokens.real == padded.real
    assert set(padded.computed.values()) != {padded.real}
    if left:
        assert removed.left
        assert tokens.computed == padded.computed
    else:
        computed = set(tokens.computed.values())
        if removed.shared:  # in passes with gradients or without
            fewest = (tokens.real - removed.shared) * min(times)
            assert fewest <= min(computed), str(removed)
            assert max(computed) <= tokens.real * max(times), str(removed)
        else:
            assert computed == {tokens.real * count for count in times}, str(removed)
