"""`DataCollatorForLanguageModeling`: padding, then labels for causal or masked language modelling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from quadrat.collators._base import MixinCollator
from quadrat.collators._epoch import SharedEpoch
from quadrat.installed import originals
from quadrat.installed.behaviour import zero_is_a_seed
from quadrat.ops.flatten import Names
from quadrat.planning import masking, philox
from quadrat.planning.diagnosis import NO_FEATURES
from quadrat.planning.fallback import raise_clearer
from quadrat.planning.frameworks import collate_further
from quadrat.planning.language_modeling import MASK_TOKENS, model_language
from quadrat.support.memory import Framework


@dataclass
class DataCollatorForLanguageModeling(MixinCollator, originals.DataCollatorForLanguageModeling):
    """Pads features and makes labels of the tokens; a drop-in for the transformers class.

    Arguments and results are those of `transformers.DataCollatorForLanguageModeling`: the padded batch and `labels`,
    int64 `[rows, width]`. Masked language modelling draws what the reference draws, from the same generator, which
    afterwards is in the same state. Features are mappings, or bare rows of token ids.

    Whole-word masking takes time linear in the length, and rows of different lengths. Besides `offset_mapping` it takes
    a column `word_ids` (the number of each token's word, None for special tokens), which is right for byte-level and
    metaspace tokenizers too: their offsets leave no gap between words.

    Args:
        pad_values: opt-in, beyond the reference: further ragged columns and the value to pad each with, as for
            `DataCollatorWithPadding`.
        mask_padding: what the labels of causal language modelling ignore: "token", every token that is the padding
            token, as the reference does; or "length", just the padding, so that an end-of-sequence token that serves as
            padding token stays in the labels.

        padding_free: opt-in: no padding, the rows one after the other, for attention that is told where they begin. A
            dict of `input_ids` and `labels`, `[1, total]` int64: masked as a batch of one row, or, for causal language
            modelling, the ids with -100 for the first token of each row; what the next options ask for; then the other
            columns the tokenizer pads and those of `pad_values`, `[1, total]`; no attention mask. With
            `pad_to_multiple_of`, `total` is rounded up, as in `DataCollatorWithFlattening`.
        return_position_ids: with `padding_free`: `position_ids`, `[1, total]` int64, where in its row a token stands.
        return_flash_attn_kwargs: with `padding_free`: `cu_seq_lens_q` and `cu_seq_lens_k`, `[rows + 1]` int32, and the
            ints `max_length_q` and `max_length_k`.
        return_seq_idx: with `padding_free`: `seq_idx`, `[1, total]` int32, which row each token belongs to.
        position_ids_start: with `padding_free`: the position of the first token of each row.
        names: with `padding_free`: say where the rows are under the names of a consumer, as
            `DataCollatorWithFlattening` does; so are the next three.
        align_to: with `padding_free`: pad each row to a multiple of this; not with `mlm`.
        total_length: with `padding_free`, in place of `pad_to_multiple_of`: the `total` of each batch.
        continue_positions: with `padding_free`: whether position_ids go on through the padding; else they are 0 there.
        rng: "torch", the reference's draws; or "philox", opt-in, for masked language modelling: counter-based ones. A
            row's mask then depends on `seed` (None is 0), the epoch (see `set_epoch`), the row's key and nothing else:
            not on the other rows, their order, padding, the number of workers or processes, or where a run was resumed.
            What becomes of a token depends on its position in the row too. No generator is used.
        row_key: with "philox": the column with an integer per row, such as its number in the data set, that tells it
            from others; it is not in the batch. By default 64 bits that come from the row's tokens, so that equal rows
            have equal masks within an epoch.
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Raises:
        ValueError, TypeError, KeyError, ...: what the reference raises, naming column, row and lengths as well.
    """

    pad_values: Mapping[str, Any] | None = None
    mask_padding: Literal["token", "length"] = "token"
    padding_free: bool = False
    return_position_ids: bool = True
    return_flash_attn_kwargs: bool = False
    return_seq_idx: bool = False
    position_ids_start: int = 0
    rng: Literal["torch", "philox"] = "torch"
    row_key: str | None = None
    deferred: bool = False
    names: Names | None = None
    align_to: int | None = None
    total_length: int | None = None
    continue_positions: bool = True

    _takes_bare_rows: ClassVar[bool] = True
    _quadrat_guarded: ClassVar[tuple[str, ...]] = (
        *("tokenizer", "mlm", "whole_word_mask", "mlm_probability", "mask_replace_prob", "random_replace_prob"),
        *("pad_to_multiple_of", "return_tensors", "seed", "generator", "pad_values", "mask_padding"),
        *("rng", "row_key", "padding_free", "deferred"),
    )

    def __post_init__(self) -> None:
        """Checks the options. Raises ValueError."""
        try:
            super().__post_init__()
        except Exception as error:
            raise_clearer(error, NO_FEATURES, self)
        if self.mask_padding not in ("token", "length"):
            raise ValueError(f"mask_padding must be 'token' or 'length', not {self.mask_padding!r}")
        philox.check(self)
        if self.rng == "philox":
            self._shared_epoch()  # before workers are forked

    @property
    def epoch(self) -> int:
        """What `set_epoch` was told last, at first 0."""
        return int(self._shared_epoch())

    def set_epoch(self, epoch: int) -> None:
        """Other masks from now on, in DataLoader workers that run already, too; for `rng="philox"` only.

        Args:
            epoch: 0 to 2**32 - 1. `quadrat.SetEpochCallback` calls this for Trainer.

        Raises:
            TypeError, ValueError: for any other.
        """
        self._shared_epoch().set(epoch)

    def _shared_epoch(self) -> SharedEpoch:
        epoch: SharedEpoch = self.__dict__.get("_quadrat_epoch") or self.__dict__.setdefault(
            "_quadrat_epoch", SharedEpoch()
        )
        return epoch

    def __getstate__(self) -> dict[str, Any]:
        """The fields, and the epoch."""
        state = super().__getstate__()
        if "_quadrat_epoch" in self.__dict__:
            state["_quadrat_epoch"] = self._shared_epoch().for_copy()
        return state

    def torch_call(self, examples: Any) -> Any:
        """Collate `examples` into torch tensors."""
        self._make_generator()
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> Any:
        """Collate `examples` into NumPy arrays."""
        self._make_generator()
        return self._collate(examples, "np")

    def tf_call(self, examples: Any) -> Any:
        """Collate `examples` into tensors of TensorFlow, as the reference of 4.57 does."""
        if self.rng == "philox":  # not from TensorFlow's generator
            return collate_further(self, "tf", examples, lambda collator, rows: collator.numpy_call(rows), None)
        return super().tf_call(examples)

    def torch_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any | None = None, offset_mapping: Any | None = None
    ) -> tuple[Any, Any]:
        """Mask `inputs`, `[rows, width]`, in place; returns them and the labels, -100 where nothing was masked."""
        masked = masking.mask_array(self, inputs, special_tokens_mask, offset_mapping, "pt")
        return super().torch_mask_tokens(inputs, special_tokens_mask, offset_mapping) if masked is None else masked

    def numpy_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any | None = None, offset_mapping: Any | None = None
    ) -> tuple[Any, Any]:
        """As `torch_mask_tokens`, on NumPy arrays."""
        masked = masking.mask_array(self, inputs, special_tokens_mask, offset_mapping, "np")
        return super().numpy_mask_tokens(inputs, special_tokens_mask, offset_mapping) if masked is None else masked

    def _make_generator(self) -> None:
        by_counter = self.mlm and self.rng == "philox"
        if not by_counter and self.seed is not None and self.generator is None and (self.seed or zero_is_a_seed()):
            self.create_rng()

    @property
    def _joins_rows(self) -> bool:  # type: ignore[override]
        return self.padding_free

    def _reference(self, framework: Framework) -> Callable[[Any], Any]:
        return super().torch_call if framework == "pt" else super().numpy_call  # type: ignore[no-any-return]

    def _fallback(self, features: Any, framework: Framework) -> Callable[[Any], Any]:
        if self.mlm and self.rng == "philox":
            return philox.plain_call(self, framework, self._reference(framework))
        return super()._fallback(features, framework)

    def _plan(self, features: Any, framework: Framework) -> Any:
        return model_language(self, features, framework)

    def _masks_itself(self, framework: Framework) -> bool:
        """Whether a subclass, or the instance, has a masking method of its own."""
        method = MASK_TOKENS[framework]
        ours = getattr(DataCollatorForLanguageModeling, method)
        return method in self.__dict__ or getattr(type(self), method) is not ours
