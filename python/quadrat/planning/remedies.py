"""What to change so that a batch does not fall back. It imports nothing: reports of ending processes ask it."""

from __future__ import annotations

_REMEDIES = {
    "mixes types of numbers": "give all rows of the column one element type, for example floats alone",
    "differs in length from the tokens": "give one value for each token, or pad the column with pad_values",
    "rows of numbers as long as the tokens": "give one number for each token",
    "the kernels do not know": "give lists, arrays or tensors of numbers",
    "is not made of lists": "give lists of ints",
    "is not made of rows of ints": "give lists of ints",
    "is not made of ints": "give ints",
    "plain mappings": "give dicts with the same keys, or rows of a datasets.Dataset",
    "an empty array or tensor": "leave empty rows out, or give lists",
    "row is empty": "leave empty rows out",
    "no pad token": "set tokenizer.pad_token = tokenizer.eos_token",
    "whole-word masking without offsets": "tokenize with return_offsets_mapping=True, or give word_ids",
    "rows are longer than max_length": "truncate the rows when you tokenize them",
    "below the longest row": "truncate the rows when you tokenize them",
    "pads in its own way": "use a class that does not override pad",
    "has its own": "use a class that does not override it",
    "and 'labels' are there": "remove one of the two columns",
    "is unknown": "upgrade quadrat",
    "labels are made of masks": "let the trainer prepare the dataset, or give labels",
    "rows of different lengths without padding": "set padding=True",
}
# transformers is as fast with these, or makes tensors of a library that quadrat does not.
_AS_FAST = ("the others cost little", "return_tensors=")


def remedy_for(reason: str) -> str | None:
    """What to do about a reason to fall back; None where nothing is known."""
    return next((remedy for words, remedy in _REMEDIES.items() if words in reason), None)


def costs_little(reason: str) -> bool:
    """Whether transformers is as fast with such batches."""
    return any(words in reason for words in _AS_FAST)
