"""A model's batch as it is, and with its padding removed: training (forward and backward) and inference on a CPU.

With one thread CPU time is measured, with two threads wall time. Beside them: the rows sorted by length, in two batches
whose gradients add up; and rows that have as many tokens and no padding, which is the limit. Then rows that begin with
one prompt, with and without sharing it. All ways but the limit must have the same loss.
"""

import copy
import time
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
import transformers

import quadrat
from benchmarks.jobs import BOTH, Job, size, timed

Batch = dict[str, torch.Tensor]
SORTED, LIMIT, APART = "rows sorted by length", "as many tokens, no padding", "padding removed, nothing shared"
VOCABULARY = 2000
IS_4 = transformers.__version__.startswith("4.")


def encoder(kind: str, layers: int, hidden: int) -> Any:
    config = getattr(transformers, f"{kind}Config")(
        **{"vocab_size": VOCABULARY, "hidden_size": hidden, "num_hidden_layers": layers, "num_labels": 2},
        **{"num_attention_heads": max(2, hidden // 64), "intermediate_size": 4 * hidden, "pooler_hidden_size": hidden},
        **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pooler_dropout": 0.0},
        **({"relative_attention": True, "pos_att_type": ["c2p", "p2c"]} if kind.startswith("Deberta") else {}),
    )
    return getattr(transformers, f"{kind}ForSequenceClassification")(config)


def decoder(vocabulary: int, intermediate: int) -> Any:
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"vocab_size": vocabulary, "intermediate_size": intermediate}
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))


def batch_of(lengths: torch.Tensor, width: int, *, tokens_are_labels: bool) -> Batch:
    mask = (torch.arange(width) < lengths[:, None]).long()
    ids = torch.randint(5, VOCABULARY, mask.shape) * mask
    labels = ids.where(mask > 0, -100) if tokens_are_labels else torch.randint(0, 2, (len(lengths),))
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def drawn_lengths(rows: int, width: int, padding: float) -> torch.Tensor:
    """Lengths whose mean is (1 - padding) * width, one of them the width."""
    lengths = torch.randint(1, width + 1, (rows,)).float()
    for _ in range(50):
        lengths = (lengths * ((1 - padding) * width) / lengths.mean()).clamp(1, width)
    lengths[0] = width
    return lengths.round().long() if padding else torch.full((rows,), width)


def sorted_by_length(batch: Batch) -> list[Batch]:
    lengths = batch["attention_mask"].sum(1)

    def of(rows: torch.Tensor) -> Batch:
        longest = lengths[rows].max()
        return {name: part[rows, :longest] if part.ndim > 1 else part[rows] for name, part in batch.items()}

    return [of(rows) for rows in lengths.argsort().chunk(2)]


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    """The loss of the model, or without labels, as online trainers do it, that of the tokens' log-probabilities."""
    if "labels" in batch:
        return model(**batch).loss  # type: ignore[no-any-return]
    real = batch["attention_mask"][:, 1:].bool()
    logits = model(**batch).logits[:, :-1][real]
    return torch.nn.functional.cross_entropy(logits, batch["input_ids"][:, 1:][real])


def step(model: Any, batches: list[Batch], train: bool) -> float:
    """The loss of a step, whose gradients are those of all batches together."""
    model.zero_grad()
    total = 0.0
    with torch.set_grad_enabled(train):
        for batch in batches:
            loss = loss_of(model, batch) / len(batches)
            if train:
                loss.backward()
            total += loss.item()
    return total


def kept(model: Any, batch: Batch) -> int:
    """The bytes that autograd keeps for the backward pass, beside the weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would keep its graph alive for ever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = loss_of(model, batch)
    assert loss.requires_grad  # and the graph is alive until here
    return sum(storages.values())


@contextmanager
def two_threads() -> Any:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def job(calls: dict[str, tuple[Any, list[Batch]]], train: bool, threads: int, facts: dict[str, Any]) -> Job:
    """Steps of models whose losses are equal, but that of the limit."""
    ways = {name: partial(step, *call, train) for name, call in calls.items()}

    def check() -> None:
        losses = {name: [call() for _ in range(2)][-1] for name, call in ways.items()}
        for name in set(losses) - {LIMIT}:
            assert losses[name] == pytest.approx(losses["transformers"], rel=1e-5), losses

    around = dict.fromkeys(ways, two_threads) if threads == 2 else {}
    return Job(ways, facts, base="transformers", check=check, around=around)


def padding(case: str) -> Job:
    name, train, threads = CASES[case]
    make, rows, width, share, _ = MODELS[name]
    rows, width = size((rows, width), (4, 24))
    torch.manual_seed(0)
    model = make()
    computed = copy.deepcopy(model)
    removed = quadrat.remove_padding(computed)
    decodes = "CausalLM" in type(model).__name__
    lengths = drawn_lengths(rows, width, share)
    batch = batch_of(lengths, width, tokens_are_labels=decodes)
    mean = max(1, round(lengths.float().mean().item()))
    calls = {"transformers": (model, [batch]), "quadrat": (computed, [batch])}
    if SORTED in ways(case):
        calls[SORTED] = model, sorted_by_length(batch)
    if LIMIT in ways(case):
        calls[LIMIT] = model, [batch_of(torch.full((rows,), mean), mean, tokens_are_labels=decodes)]
    step(computed, [batch], train)  # compares both ways
    facts = {"part": "padding", "model": name.rsplit(",", 1)[0], "batch": f"{rows} rows of up to {width}"}
    facts |= {"training": train, "threads": threads}
    facts |= {"padding": 1 - lengths.sum().item() / (rows * width), "tokens": int(lengths.sum())}
    facts |= {"kept": kept(computed, batch) / kept(model, batch), "left": removed.left}
    return job(calls, train, threads, facts)


def prompts(prompt: int, group: int, answer: int) -> Job:
    """Answers of half to all of so many tokens, to one prompt."""
    prompt, group, answer = size((prompt, group, answer), (24, 3, 8))
    torch.manual_seed(0)
    lengths = prompt + torch.randint(answer // 2, answer + 1, (group,))
    lengths[0] = prompt + answer
    batch = batch_of(lengths, prompt + answer, tokens_are_labels=True)
    batch["input_ids"][:, :prompt] = batch["input_ids"][0, :prompt]
    del batch["labels"]  # with labels, nothing is shared
    model = decoder(VOCABULARY, 768)
    apart, shared = copy.deepcopy(model), copy.deepcopy(model)
    quadrat.remove_padding(apart)
    for hook in apart._forward_pre_hooks.values():
        hook.__self__.decisions._may_share = dict.fromkeys((True, False), False)  # there is no option for it
    removed = quadrat.remove_padding(shared)
    step(shared, [batch], True)
    before = removed.computed
    step(shared, [batch], True)
    facts = {"part": "prompts", "prompt": prompt, "rows": group, "answer": answer, "tokens": int(lengths.sum())}
    facts |= {"computed": removed.computed - before, "kept": kept(shared, batch) / kept(model, batch)}
    calls = {"transformers": (model, [batch]), APART: (apart, [batch]), "quadrat": (shared, [batch])}
    return job(calls, True, 1, facts)


ALL = (*BOTH, SORTED, LIMIT)
BERT = partial(partial, encoder, "Bert")
QWEN = {"Qwen2 4 x 256": (partial(decoder, 5000, 1024), 16, 512, 0.69, BOTH)}
MODELS: dict[str, tuple[Any, int, int, float, Any]] = {
    "BERT 1 x 64, 75 %": (BERT(1, 64), 32, 512, 0.75, ALL),
    **{
        f"BERT 4 x 256, {share} %": (BERT(4, 256), 32, 128, share / 100, ALL if share == 56 else BOTH)
        for share in (75, 56, 43, 12, 0)
    },
    "BERT 4 x 256, 3 %": (BERT(4, 256), 8, 512, 0.03, BOTH),
    "BERT 2 x 64, 56 %": (BERT(2, 64), 32, 64, 0.56, ALL),
    "BERT 2 x 64, 128 rows": (BERT(2, 64), 128, 32, 0.43, ALL),
    "BERT 2 x 64, 256 rows": (BERT(2, 64), 256, 16, 0.43, ALL),
    "DeBERTa-v2 2 x 128, 75 %": (partial(encoder, "DebertaV2", 2, 128), 16, 256, 0.75, BOTH),
    **QWEN,
}
if IS_4:
    MODELS = {name: MODELS[name] for name in ("BERT 1 x 64, 75 %", "BERT 4 x 256, 75 %", "BERT 4 x 256, 56 %")}
CASES = {
    f"{name}, {'training' if train else 'inference'}, {threads} thread{'s' * (threads > 1)}": (name, train, threads)
    for name in MODELS
    for train in (True, False)
    for threads in (1, 2)
}
ONE, TWO = ({case: partial(padding, case) for case, of in CASES.items() if of[2] == threads} for threads in (1, 2))
PROMPTS = {
    f"prompt of {prompt}, {group} answers of up to {answer}": partial(prompts, prompt, group, answer)
    for prompt, group, answer in ((512, 8, 128), (128, 8, 128), (256, 4, 512), (512, 2, 256), (8, 8, 128))
}


def ways(case: str) -> tuple[str, ...]:
    """Sorted rows and the limit are for training with one thread."""
    name, train, threads = CASES[case]
    return MODELS[name][4] if train and threads == 1 else BOTH  # type: ignore[no-any-return]


test_one_thread = timed(ONE, ways, small=1, timer=time.process_time, least=3)
test_two_threads = timed(TWO, ways, small=1, least=3, seconds=0)
if not IS_4:  # one major version is enough
    test_prompts = timed(PROMPTS, ("transformers", APART, "quadrat"), small=1, timer=time.process_time, least=2)
