"""What one of two processes does, for `isolated.in_two`: each function is given a folder, and returns what it saw."""

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel
from transformers import BertForSequenceClassification

import quadrat
from quadrat import remove_padding
from quadrat.batching import by_length, map_by_length
from support.families import DECODER, padded_batch, tiny_of, with_labels
from support.padded_trainings import weights
from support.pages import ROOT, snippets
from support.resumed import STREAMS, of_datasets, train
from support.standins import TEXTS, encoder_tokenizer
from support.trainer import PositioningCollator, arguments, tiny


def batched(folder: Path) -> list[list[list[int]]]:
    """Trains with a BatchedDataset, and a collate function of one's own: the rows of each batch, epoch by epoch."""
    lengths = np.random.default_rng(0).integers(3, 30, 60).tolist()
    dataset = [{"input_ids": [row + 3] * length, "label": row % 2} for row, length in enumerate(lengths)]

    def collate(items: Any) -> Any:
        (rows,) = items
        width = max(len(row["input_ids"]) for row in rows)
        ids = [row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor([row["label"] for row in rows])}

    sampler = quadrat.TokenBudgetBatchSampler(lengths, 64, world_size=2, rank=None)
    trainer = PositioningCollator(
        model=tiny(BertForSequenceClassification, num_labels=2),
        args=arguments(folder, per_device_train_batch_size=1, num_train_epochs=2, ddp_backend="gloo"),
        train_dataset=quadrat.data.BatchedDataset(dataset, sampler),
        data_collator=collate,
        callbacks=[quadrat.SetEpochCallback()],
    )
    trainer.train()
    steps = len(sampler) // 2
    seen = [[number - 3 for number in numbers] for numbers, _ in trainer.seen]
    return [seen[first : first + steps] for first in range(0, len(seen), steps)]


def groups(folder: Path, name: str) -> dict[str, Any]:
    """Trains with GRPO or RLOO, with and without padding: the weights of both."""
    from model.test_prompt_groups import trainer_of

    options = {"per_device_train_batch_size": 4, "num_generations": 4, "ddp_backend": "gloo"}
    trained, removed = [], None
    for removes in (False, True):
        torch.manual_seed(0)
        trainer = trainer_of(name, folder, gradient_checkpointing=False, **options)
        removed = remove_padding(trainer) if removes else None
        trainer.train()
        trained.append(weights(trainer.model))
    assert removed is not None
    return {"expected": trained[0], "got": trained[1], "shared": removed.shared, "says": str(removed)}


def sharded(folder: Path, way: str) -> dict[str, Any]:
    """Trains a model with and without padding, under DDP or FSDP 2: the weights of both."""
    dist.init_process_group("gloo")
    rank, others = dist.get_rank(), "other forms" in way

    def wrapped(model: Any) -> Any:
        if way.startswith("DDP"):
            return DistributedDataParallel(model)
        from torch.distributed.fsdp import fully_shard

        for layer in model.model.layers:
            fully_shard(layer)
        return fully_shard(model)

    def trained(*, removes: bool) -> tuple[dict[str, Any], int]:
        model: Any = tiny_of("LlamaForCausalLM", DECODER)
        removed = remove_padding(model) if removes and "removed" in way else None
        model = wrapped(model.train())
        if removes and removed is None:
            removed = remove_padding(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for step in range(4):
            # One process proves other forms than the other one, or has no padding and proves nothing.
            batch = padded_batch(4, 12, seed=2 * step + rank, left=others and step == 2 and rank == 1)
            if others and step == rank:
                batch["attention_mask"].fill_(1)
            model(**with_labels(batch)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return weights(model), removed.removed if removed else 0

    (expected, _), (got, count) = trained(removes=False), trained(removes=True)
    return {"expected": expected, "got": got, "removed": count}


def mapped(_: Path) -> None:
    """Shares a loop by length, in plain PyTorch and with accelerate: each process gets all results."""
    accelerator = Accelerator(cpu=True)  # which calls init_process_group
    assert dist.get_backend() == "gloo"
    here = {"world_size": accelerator.num_processes, "rank": accelerator.process_index}
    assert here == {"world_size": 2, "rank": int(os.environ["RANK"])}
    tokenizer, plain = encoder_tokenizer(), tiny(BertForSequenceClassification).eval()
    prepared = accelerator.prepare(plain)  # its forward waits for the other process, if it has buffers
    encoded = [[dict(tokenizer(text)) for text in TEXTS]]  # with a vocabulary that differs from process to process
    dist.broadcast_object_list(encoded)
    computed = []

    def function(batch, model=prepared):
        computed.append(len(batch["input_ids"]))
        tokens = quadrat.unpad(batch["input_ids"], mask=batch["attention_mask"])
        return {"logits": model(**batch).logits, "tokens": (tokens, batch["input_ids"][:, 1].tolist())}

    with torch.inference_mode():
        for count in (1, 2, 3, 12):
            rows = encoded[0][:count]
            whole = function(quadrat.DataCollatorWithPadding(tokenizer)(rows), plain)
            computed.clear()
            for budget in (1, 50, "auto"):
                outputs = map_by_length(function, rows, tokenizer=tokenizer, max_tokens=budget, **here)
                torch.testing.assert_close(outputs["logits"], whole["logits"], rtol=1e-5, atol=1e-5)
                assert outputs["tokens"][0].to_lists() == [row["input_ids"] for row in rows]
                assert outputs["tokens"][1] == whole["tokens"][1]
            assert sum(computed) <= 3 * (count // 2 + 2)
            streamed = list(map_by_length(function, iter(rows), tokenizer=tokenizer, window=5, **here))
            assert [output["tokens"][1] for output in streamed] == whole["tokens"][1]
        batches = by_length(rows, tokenizer=tokenizer, max_tokens=50, **here)
        steps = [len(batches)] * 2
        with torch.inference_mode(False):  # in which torch 2.2 does not gather
            dist.all_gather_object(steps, len(batches))
        assert len(set(steps)) == 1
        labels = batches.restore([torch.from_numpy(numbers) for numbers, _ in batches])
        assert labels.tolist() == list(range(12))
    try:
        map_by_length(function, rows, tokenizer=tokenizer, world_size=3)
    except ValueError as error:
        assert "world_size=3 and rank=0, but torch.distributed has 2 and" in str(error)  # noqa: PT017
    else:
        raise AssertionError


def resumed(folder: Path) -> None:
    """Trains on streams, stops and goes on."""
    STREAMS["4 shards"] = lambda: of_datasets(4)
    apart = {"accelerator_config": {"dispatch_batches": False}}
    runs: list[tuple[str, dict[str, Any]]] = [
        ("3 shards", {"per_device_train_batch_size": 3}),  # one process reads for both
        ("4 shards", {**apart, "per_device_train_batch_size": 3, "dataloader_num_workers": 2}),  # each has shards
        ("batches", {**apart, "gradient_accumulation_steps": 2, "max_steps": 20}),  # both read all, and take turns
        ("batches", {**apart, "dataloader_num_workers": 2}),
    ]
    multiprocessing.set_start_method("forkserver")  # workers forked beside gloo's threads may wait for ever
    multiprocessing.set_forkserver_preload(["support.resumed"])
    dist.init_process_group("gloo")
    for number, (stream, options) in enumerate(runs):
        # transformers 4.57 cannot restore an optimizer in several processes without a GPU.
        options |= {"ddp_backend": "gloo", "save_only_model": True}
        whole = train(folder / str(number), stream, **options)
        for stop in (3, 17):
            place = folder / f"{number}-{stop}"
            first = train(place, stream, stop=stop, **options)
            dist.barrier()  # the first process writes the checkpoint, and the others do not wait for it
            rest = train(place, stream, resume=True, **options)
            assert first.record + rest.record == whole.record, (stream, options, stop)
            assert first.epochs + rest.epochs == whole.epochs


ACCELERATE = ROOT / "docs/how-to/accelerate.md"


def page(folder: Path) -> dict[str, Any]:
    """Runs the code of docs/how-to/accelerate.md, except what resumes, beside the tokenizer that it names."""
    os.chdir(folder)
    names: dict[str, Any] = {}
    for snippet in snippets(ACCELERATE):
        if "load_state(" not in snippet.code:
            exec(snippet.code, names)
    return {"rows": len(names["rows"]), "predictions": names["predictions"].tolist(), "streamed": names["streamed"]}


PAGE_LENGTHS = [1 + 7 * row % 30 for row in range(60)]


def resumed_page(folder: Path, killed_before: str) -> None:
    """Runs its code that resumes, and writes epoch and rows of each batch, until it is killed before one, or never."""
    rows = [
        {"input_ids": [row + 200] * length, "attention_mask": [1] * length} for row, length in enumerate(PAGE_LENGTHS)
    ]
    seen: list[Any] = []
    names: dict[str, Any] = {}

    def train_step(batch: Any) -> None:
        names["accelerator"].wait_for_everyone()  # as gradients that are averaged do
        if str(len(seen)) == killed_before:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append([names["position"].epoch, (batch["input_ids"][:, 0] - 200).tolist()])
        Path(f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))

    os.chdir(folder)
    for snippet in snippets(ACCELERATE):
        resumes = "load_state(" in snippet.code
        if "rows" in names:
            names.update(rows=rows, train_step=train_step)
        exec(snippet.code if resumes else snippet.code.partition("\nfor epoch")[0], names)
        if resumes:
            break
