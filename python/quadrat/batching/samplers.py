"""The sampler of transformers that groups rows by length, with lengths of datasets from Arrow."""

import sys
from typing import Any, ClassVar

from quadrat.batching.lengths import has_stored_lengths
from quadrat.batching.lengths import lengths as stored_lengths
from quadrat.input.rows import MAIN
from quadrat.ragged.offsets import require_each
from quadrat.support.extras import needs

with needs("quadrat.batching.samplers", "transformers"):
    from quadrat.installed import imitated, originals
    from quadrat.installed.imitated import Imitation, code_of


class LengthGroupedSampler(originals.LengthGroupedSampler):  # type: ignore[misc,name-defined]
    """Row numbers in an order that puts rows of about the same length together, for Trainer's `group_by_length`.

    The sampler is that of transformers: a random permutation, sorted from long to short within megabatches of (at most)
    50 batches, the longest row first. Lengths of a `datasets.Dataset` come from Arrow; transformers reads every row.

    Args:
        batch_size: rows in a batch; with gradient accumulation, in all batches of a step.
        dataset: its items are mappings with token ids. Not read if `lengths` are given.
        lengths: the length of each row, in tokens; or a dataset, whose `quadrat.lengths` are used.
        model_input_name: the column to measure, by default "input_ids".
        generator: a `torch.Generator` for the permutation; by default torch's global one.

    Raises:
        ValueError: if neither `dataset` nor `lengths` is given, or there are more or fewer lengths than rows, or the
            first item is not a mapping with that column.
        TypeError: when a row is null; the message names the row.

    Examples:
        >>> import quadrat, torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> sampler = quadrat.batching.LengthGroupedSampler(2, lengths=[3, 9, 4, 8], generator=generator)
        >>> list(sampler)
        [1, 0, 3, 2]
    """

    _imitates: ClassVar[Imitation] = Imitation(
        "LengthGroupedSampler", code_of("LengthGroupedSampler", home="trainer_pt_utils"), compares=False
    )

    def __init__(
        self,
        batch_size: int,
        dataset: Any | None = None,
        lengths: Any | None = None,
        model_input_name: str | None = None,
        generator: Any = None,
    ) -> None:
        if dataset is None and lengths is None and hasattr(batch_size, "__len__"):
            raise ValueError(
                f"the first argument is the batch size, not a {type(batch_size).__name__}: give "
                "LengthGroupedSampler(batch_size, dataset)"
            )
        name = MAIN if model_input_name is None else model_input_name
        if hasattr(lengths, "column_names"):  # a dataset in the place of its lengths
            lengths = stored_lengths(lengths, name).tolist()
        elif lengths is not None:
            lengths = _read_once(lengths)
        elif imitated.unknown(self._imitates) is None and has_stored_lengths(dataset, name):
            lengths = stored_lengths(dataset, name).tolist()
        if lengths is not None and dataset is not None and hasattr(dataset, "__len__"):
            require_each(lengths, len(dataset))
        super().__init__(batch_size, dataset, lengths, model_input_name, generator)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={len(self)}, batch_size={self.batch_size})"


def _read_once(lengths: Any) -> Any:
    """Lengths; a column of a dataset, of which each look reads a row, as a list."""
    column = getattr(sys.modules.get("datasets"), "Column", None)  # from datasets 4 on
    source: Any = getattr(lengths, "source", None)
    if column is None or type(lengths) is not column or not hasattr(source, "select_columns"):
        return lengths
    if source.format["type"] == "custom":
        return lengths
    name = lengths.column_name  # alone, or all columns would be decoded
    return source.select_columns(name).with_format(None)[:][name]
