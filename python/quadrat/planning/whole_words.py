"""Whole-word masking of transformers 4.x in plain Python: quadrat's reference on versions that dropped it.

The tests compare it with the class of 4.57, and the compiled collator with both.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import transformers
from transformers.data import data_collator as theirs

from quadrat.installed import originals

_MOST = 512  # tokens masked in a row


class DataCollatorForWholeWordMask(originals.DataCollatorForLanguageModeling):
    """Masks whole words of WordPiece tokens ("##..." continues a word), as transformers 4.x did.

    Fields are those of `transformers.DataCollatorForLanguageModeling`; `mlm` and `whole_word_mask` are always True.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the fields of the base class; how masked tokens are replaced stays as given there."""
        super().__init__(*args, **kwargs)
        self.mlm = True
        self.whole_word_mask = True

    def torch_call(self, examples: Any) -> dict[str, Any]:
        """Collate and mask `examples` into torch tensors."""
        inputs, masked = self._collated(examples, theirs._torch_collate_batch)
        inputs, labels = self.torch_mask_tokens(inputs, masked)
        return {"input_ids": inputs, "labels": labels}

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate and mask `examples` into NumPy arrays."""
        inputs, masked = self._collated(examples, theirs._numpy_collate_batch)
        inputs, labels = self.numpy_mask_tokens(inputs, masked)
        return {"input_ids": inputs, "labels": labels}

    def _collated(self, examples: Any, collate: Any) -> tuple[Any, Any]:
        """The padded ids, and 1 where a token belongs to a word that was chosen."""
        if self.seed and self.generator is None:
            self.create_rng()
        rows = examples
        if isinstance(examples[0], Mapping):
            rows = [example["input_ids"] for example in examples]
        else:
            examples = [{"input_ids": row} for row in rows]
        inputs = collate(rows, self.tokenizer, pad_to_multiple_of=self.pad_to_multiple_of)
        masked = [self._whole_word_mask(self._tokens(example)) for example in examples]
        return inputs, collate(masked, self.tokenizer, pad_to_multiple_of=self.pad_to_multiple_of)

    def _tokens(self, example: Mapping[str, Any]) -> list[str]:
        """The tokens of a row, those at the positions of `chinese_ref` marked as continuing a word."""
        tokens = [self.tokenizer._convert_id_to_token(token_id) for token_id in _as_list(example["input_ids"])]
        if "chinese_ref" in example:
            joined = _as_list(example["chinese_ref"])
            tokens = ["##" + token if position in joined else token for position, token in enumerate(tokens)]
        return tokens

    def _whole_word_mask(self, input_tokens: list[str], max_predictions: int = _MOST) -> list[int]:
        """1 for the tokens of the words that are masked: words in random order, each if it still fits."""
        if not isinstance(self.tokenizer, bert_tokenizers()):
            warn_of_other_tokenizers()
        words: list[list[int]] = []
        for position, token in enumerate(input_tokens):
            if token in ("[CLS]", "[SEP]"):
                continue
            if words and token.startswith("##"):
                words[-1].append(position)
            else:
                words.append([position])
        wanted = min(max_predictions, max(1, round(len(input_tokens) * self.mlm_probability)))
        mask = [0] * len(input_tokens)
        for word in self._shuffle(words):
            if len(word) <= wanted:
                wanted -= len(word)
                for position in word:
                    mask[position] = 1
        return mask

    def _shuffle(self, cand_indexes: list[list[int]]) -> list[list[int]]:
        """The words in random order: Python's without a seed, else that of the collator's generator."""
        if self.seed is None:
            random.shuffle(cand_indexes)
        elif self.return_tensors == "pt":
            import torch

            order = torch.randperm(len(cand_indexes), generator=self.generator)
            return [cand_indexes[i] for i in order.tolist()]
        else:
            self.generator.shuffle(cand_indexes)
        return cand_indexes

    def torch_mask_tokens(self, inputs: Any, mask_labels: Any) -> tuple[Any, Any]:  # type: ignore[override, unused-ignore]
        """Inputs with the chosen tokens replaced, and labels: those tokens, -100 elsewhere. Changes `inputs`."""
        import torch

        labels = inputs.clone()
        kept = torch.tensor(self._special_tokens(labels.tolist()), dtype=torch.bool)
        if self.tokenizer.pad_token is not None:
            kept = kept | labels.eq(self.tokenizer.pad_token_id)
        masked = mask_labels.masked_fill(kept, value=0).bool()
        labels[~masked] = -100

        def trials(probability: float) -> Any:
            return torch.bernoulli(torch.full(labels.shape, probability), generator=self.generator).bool()

        by_mask = trials(self.mask_replace_prob) & masked
        inputs[by_mask] = self.tokenizer.convert_tokens_to_ids(self.tokenizer.mask_token)
        if self.mask_replace_prob != 1 and self.random_replace_prob != 0:
            by_random = trials(self.random_replace_prob / (1 - self.mask_replace_prob)) & masked & ~by_mask
            words = torch.randint(len(self.tokenizer), labels.shape, dtype=torch.long, generator=self.generator)
            inputs[by_random] = words[by_random]
        return inputs, labels

    def numpy_mask_tokens(self, inputs: Any, mask_labels: Any) -> tuple[Any, Any]:  # type: ignore[override, unused-ignore]
        """As `torch_mask_tokens`, drawing from the collator's NumPy generator or from `np.random`."""
        labels = np.copy(inputs)
        masked = mask_labels.astype(bool)
        masked[np.array(self._special_tokens(labels.tolist()), dtype=bool)] = False
        if self.tokenizer.pad_token is not None:
            masked[labels == self.tokenizer.pad_token_id] = False
        labels[~masked] = -100
        source = self.generator or np.random

        def trials(probability: float) -> Any:
            return source.binomial(1, probability, size=labels.shape).astype(bool)

        by_mask = trials(self.mask_replace_prob) & masked
        inputs[by_mask] = self.tokenizer.convert_tokens_to_ids(self.tokenizer.mask_token)
        if self.mask_replace_prob != 1 and self.random_replace_prob != 0:
            by_random = trials(self.random_replace_prob / (1 - self.mask_replace_prob)) & masked & ~by_mask
            integers = self.generator.integers if self.generator else np.random.randint
            words = integers(low=0, high=len(self.tokenizer), size=labels.shape, dtype=np.int64)
            inputs[by_random] = words[by_random]
        return inputs, labels

    def _special_tokens(self, rows: Sequence[list[int]]) -> list[list[int]]:
        if self.tokenizer.mask_token is None:
            raise ValueError(f"{type(self.tokenizer).__name__} has no mask token, which masking needs; set mask_token")
        return [self.tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in rows]


@functools.cache
def bert_tokenizers() -> tuple[type, ...]:
    """The classes whose tokens this masking is made for."""
    return transformers.BertTokenizer, transformers.BertTokenizerFast


def warn_of_other_tokenizers() -> None:
    """Warn that words are not recognised if tokens do not mark them as BERT's do."""
    warnings.warn(
        "DataCollatorForWholeWordMask is only suitable for BertTokenizer-like tokenizers: it takes a token as part of "
        "the word before it when it begins with '##'.",
        stacklevel=2,
    )


def _as_list(row: Any) -> list[Any]:
    if isinstance(row, list):
        return row
    return list((row.numpy() if hasattr(row, "numpy") else row).tolist())
