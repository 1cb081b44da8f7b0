"""Embed texts in order of length: the same embeddings as in order of arrival, and how much sooner.

An encoder embeds the docstrings of installed packages, and finds for a few of them the nearest other one. In order of
arrival, a batch of 32 is padded to its longest text. `map_by_length` puts rows of similar length together, as many as a
token budget allows, and returns the embeddings in the order of the texts. The weights are random, unless you name a
model (`--model`). The script takes less than a minute on two cores.

    python examples/embeddings.py
    python examples/embeddings.py --model sentence-transformers/all-MiniLM-L6-v2 --per-package 500
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from corpus import docstrings, train_tokenizer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from quadrat.batching import map_by_length


class Embedder:
    """Means of the last hidden states, and the tokens that were computed for them."""

    def __init__(self, model: Any) -> None:
        self.model, self.computed, self.real = model.eval(), 0, 0

    def __call__(self, batch: Any) -> torch.Tensor:
        """Embeddings of a batch, `[rows, hidden]`, of length 1."""
        mask = batch["attention_mask"]
        self.computed, self.real = self.computed + mask.numel(), self.real + int(mask.sum())
        hidden = self.model(**batch).last_hidden_state * mask[..., None]
        return torch.nn.functional.normalize(hidden.sum(1), dim=1)


def in_order_of_arrival(embed: Embedder, texts: list[str], tokenizer: Any) -> torch.Tensor:
    """Embeddings in batches of 32, as a loop of one's own makes them."""
    options = {"padding": True, "truncation": True, "return_tensors": "pt"}
    parts = [texts[first : first + 32] for first in range(0, len(texts), 32)]
    return torch.cat([embed(tokenizer(part, **options)) for part in parts])


def timed(text: str, embed: Embedder, make: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    """Embeddings and seconds; says how long they took."""
    embed.computed = embed.real = 0
    began = time.perf_counter()
    with torch.inference_mode():
        output = make()
    seconds = time.perf_counter() - began
    print(f"{text:22} {seconds:6.1f} s, {embed.computed / embed.real:.2f} tokens computed for each real one")
    return output, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a name on the hub; by default a BERT of two layers, not trained")
    parser.add_argument("--per-package", type=int, default=100, help="texts of each package (default: 100)")
    options = parser.parse_args()
    texts = docstrings(per_package=options.per_package).texts
    texts = [texts[row] for row in torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()]
    if options.model:
        tokenizer, model = AutoTokenizer.from_pretrained(options.model), AutoModel.from_pretrained(options.model)
    else:
        torch.manual_seed(0)
        tokenizer = train_tokenizer(texts)
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
        model = BertModel(BertConfig(vocab_size=len(tokenizer), **sizes))
    embed = Embedder(model)
    print(f"{len(texts)} texts")
    arrived, slow = timed("in order of arrival", embed, lambda: in_order_of_arrival(embed, texts, tokenizer))
    embeddings, fast = timed("map_by_length", embed, lambda: map_by_length(embed, texts, tokenizer=tokenizer))
    print(f"{slow / fast:.1f} times sooner; the largest difference is {(arrived - embeddings).abs().max():.0e}")
    torch.testing.assert_close(embeddings, arrived, rtol=0, atol=1e-5)
    print("The embeddings are the same, to rounding.")
    likeness = embeddings @ embeddings.T - 2 * torch.eye(len(texts))
    for row in range(3):
        nearest = int(likeness[row].argmax())
        print(f"{' '.join(texts[row].split())[:50]!r} is nearest to {' '.join(texts[nearest].split())[:50]!r}")


if __name__ == "__main__":
    main()
