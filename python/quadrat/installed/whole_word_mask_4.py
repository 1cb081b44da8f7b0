"""Whole-word masking as transformers 4.x does it, in plain Python: quadrat's reference on versions that dropped it."""

import functools
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from transformers.data import data_collator as theirs

from quadrat.installed import originals
from quadrat.support.generators import create_generator


class DataCollatorForWholeWordMask(originals.DataCollatorForLanguageModeling):
    """Masks whole words of WordPiece tokens ("##..." continues a word), as transformers 4.x did."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mlm = True
        self.whole_word_mask = True

    def torch_call(self, examples: Any) -> dict[str, Any]:
        """Collate and mask `examples` into torch tensors."""
        return self._call(examples, theirs._torch_collate_batch, self.torch_mask_tokens)

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate and mask `examples` into NumPy arrays."""
        return self._call(examples, theirs._numpy_collate_batch, self.numpy_mask_tokens)

    def _call(self, examples: Any, collate: Any, mask_tokens: Any) -> dict[str, Any]:
        if self.seed and self.generator is None:
            create_generator(self)
        rows = examples
        if isinstance(examples[0], Mapping):
            rows = [example["input_ids"] for example in examples]
        else:
            examples = [{"input_ids": row} for row in rows]
        inputs = collate(rows, self.tokenizer, pad_to_multiple_of=self.pad_to_multiple_of)
        masked = [self._whole_word_mask(self._tokens(example)) for example in examples]
        masked = collate(masked, self.tokenizer, pad_to_multiple_of=self.pad_to_multiple_of)
        inputs, labels = mask_tokens(inputs, masked)
        return {"input_ids": inputs, "labels": labels}

    def _tokens(self, example: Mapping[str, Any]) -> list[str]:
        """The tokens of a row, those at the positions of `chinese_ref` marked as continuing a word."""
        tokens = [self.tokenizer._convert_id_to_token(token_id) for token_id in _as_list(example["input_ids"])]
        if "chinese_ref" in example:
            joined = _as_list(example["chinese_ref"])
            tokens = ["##" + token if position in joined else token for position, token in enumerate(tokens)]
        return tokens

    def _whole_word_mask(self, input_tokens: list[str], max_predictions: int = 512) -> list[int]:
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
            order = torch.randperm(len(cand_indexes), generator=self.generator)
            return [cand_indexes[i] for i in order.tolist()]
        else:
            self.generator.shuffle(cand_indexes)
        return cand_indexes

    def torch_mask_tokens(self, inputs: Any, mask_labels: Any) -> tuple[Any, Any]:  # type: ignore[override, unused-ignore]
        """Inputs with the chosen tokens replaced, and labels: those tokens, -100 elsewhere. Changes `inputs`."""
        shape, generator = inputs.shape, self.generator
        return self._replace(
            inputs,
            inputs.clone(),
            mask_labels.bool() & ~torch.tensor(self._special_tokens(inputs.tolist()), dtype=torch.bool),
            lambda p: torch.bernoulli(torch.full(shape, p), generator=generator).bool(),
            lambda high: torch.randint(high, shape, dtype=torch.long, generator=generator),
        )

    def numpy_mask_tokens(self, inputs: Any, mask_labels: Any) -> tuple[Any, Any]:  # type: ignore[override, unused-ignore]
        """As `torch_mask_tokens`, drawing from the collator's NumPy generator or from `np.random`."""
        source = self.generator or np.random
        integers = self.generator.integers if self.generator else np.random.randint
        return self._replace(
            inputs,
            np.copy(inputs),
            mask_labels.astype(bool) & ~np.array(self._special_tokens(inputs.tolist()), dtype=bool),
            lambda p: source.binomial(1, p, size=inputs.shape).astype(bool),
            lambda high: integers(low=0, high=high, size=inputs.shape, dtype=np.int64),
        )

    def _replace(self, inputs: Any, labels: Any, masked: Any, trials: Any, words: Any) -> tuple[Any, Any]:
        """Write to `inputs` where tokens are masked, and to `labels`, a copy of them, where not."""
        if self.tokenizer.pad_token is not None:
            masked = masked & (labels != self.tokenizer.pad_token_id)
        labels[~masked] = -100
        by_mask = trials(self.mask_replace_prob) & masked
        inputs[by_mask] = self.tokenizer.convert_tokens_to_ids(self.tokenizer.mask_token)
        if self.mask_replace_prob != 1 and self.random_replace_prob != 0:
            by_random = trials(self.random_replace_prob / (1 - self.mask_replace_prob)) & masked & ~by_mask
            inputs[by_random] = words(len(self.tokenizer))[by_random]
        return inputs, labels

    def _special_tokens(self, rows: Sequence[list[int]]) -> list[list[int]]:
        if self.tokenizer.mask_token is None:
            raise ValueError(f"{type(self.tokenizer).__name__} has no mask token, which masking needs; set mask_token")
        return [self.tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in rows]


# transformers 5 has no such class, or a different one of that name.
Reference: Any = originals.ORIGINALS.get("DataCollatorForWholeWordMask", DataCollatorForWholeWordMask)


@functools.cache
def bert_tokenizers() -> tuple[type, ...]:
    """The classes whose tokens this masking is made for."""
    return transformers.BertTokenizer, transformers.BertTokenizerFast


def warn_of_other_tokenizers() -> None:
    """Warn, for each row as transformers 4.x does, that words are those of tokens that begin with "##" as BERT's do."""
    warnings.warn(
        "DataCollatorForWholeWordMask is only suitable for BertTokenizer-like tokenizers. "
        "Please refer to the documentation for more information.",
        stacklevel=2,
    )


def _as_list(row: Any) -> list[Any]:
    if isinstance(row, list):
        return row
    return list((row.numpy() if hasattr(row, "numpy") else row).tolist())
