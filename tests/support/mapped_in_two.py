"""One of two processes that share a loop by length, in plain PyTorch and with accelerate: each gets all results."""

import os

import torch
import torch.distributed
from accelerate import Accelerator
from transformers import BertForSequenceClassification

import quadrat
from quadrat.batching import by_length, map_by_length
from support.standins import TEXTS, encoder_tokenizer
from support.trainer import tiny


def main():
    accelerator = Accelerator(cpu=True)  # which calls init_process_group
    assert torch.distributed.get_backend() == "gloo"
    here = {"world_size": accelerator.num_processes, "rank": accelerator.process_index}
    assert here == {"world_size": 2, "rank": int(os.environ["RANK"])}
    tokenizer, plain = encoder_tokenizer(), tiny(BertForSequenceClassification).eval()
    prepared = accelerator.prepare(plain)  # its forward waits for the other process, if it has buffers
    encoded = [[dict(tokenizer(text)) for text in TEXTS]]  # with a vocabulary that differs from process to process
    torch.distributed.broadcast_object_list(encoded)
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
                found = map_by_length(function, rows, tokenizer=tokenizer, max_tokens=budget, **here)
                torch.testing.assert_close(found["logits"], whole["logits"], rtol=1e-5, atol=1e-5)
                assert found["tokens"][0].to_lists() == [row["input_ids"] for row in rows]
                assert found["tokens"][1] == whole["tokens"][1]
            assert sum(computed) <= 3 * (count // 2 + 2)
            streamed = list(map_by_length(function, iter(rows), tokenizer=tokenizer, window=5, **here))
            assert [one["tokens"][1] for one in streamed] == whole["tokens"][1]
        batches = by_length(rows, tokenizer=tokenizer, max_tokens=50, **here)
        steps = [len(batches)] * 2
        with torch.inference_mode(False):  # in which torch 2.2 does not gather
            torch.distributed.all_gather_object(steps, len(batches))
        assert len(set(steps)) == 1
        labels = batches.restore([torch.from_numpy(numbers) for numbers, _ in batches])
        assert labels.tolist() == list(range(12))
    try:
        map_by_length(function, rows, tokenizer=tokenizer, world_size=3)
    except ValueError as error:
        assert "world_size=3 and rank=0, but torch.distributed has 2 and" in str(error)  # noqa: PT017
    else:
        raise AssertionError


main()
