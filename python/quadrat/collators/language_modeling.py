"""`DataCollatorForLanguageModeling`: padding, then labels for causal or masked language modelling."""

import copy
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from quadrat.batching._epoch import SharedEpoch
from quadrat.collators._base import MixinCollator
from quadrat.collators.options import PaddingFreeOptions
from quadrat.input.rows import names_of
from quadrat.installed import originals
from quadrat.installed.behaviour import makes_fitting_generators, zero_is_a_seed
from quadrat.installed.imitated import BARE_ROWS, PADDING, Imitation, code_of
from quadrat.masking import philox
from quadrat.masking.language_modeling import MASK_TOKENS, mask_array, model_language
from quadrat.planning.diagnosis.values import Role
from quadrat.planning.fallback import NO_FEATURES, Reason, fall_back, raise_clearer
from quadrat.support.generators import create_generator, lacks_generator
from quadrat.support.kinds import Framework

_NAME = "DataCollatorForLanguageModeling"


@dataclass
class DataCollatorForLanguageModeling(PaddingFreeOptions, MixinCollator, originals.DataCollatorForLanguageModeling):
    """Pad features and make labels of their tokens; replaces the transformers class.

    Result and errors are those of `transformers.DataCollatorForLanguageModeling`: the padded batch and `labels`, int64
    `[rows, width]`; errors name the column, the row and the lengths. Masked language modelling draws the same random
    numbers, from the same generator, and leaves it in the same state. Features are mappings, or bare rows of token ids.

    Whole-word masking accepts rows of different lengths. Besides `offset_mapping` it reads a column `word_ids` (the
    number of each token's word, None for special tokens), also of byte-level and metaspace tokenizers, whose offsets
    leave no gap between words.

    Args:
        tokenizer, pad_to_multiple_of, return_tensors, pad_values, deferred, join_columns, pad_axes, dtypes: as in
            `DataCollatorWithPadding`. The tokenizer also gives the mask token and the special tokens.
        mlm: whether to mask tokens; otherwise labels are the tokens themselves, for causal language modelling.
        whole_word_mask: whether to mask whole words.
        mlm_probability: the probability that a token, or a word, is masked.
        mask_replace_prob, random_replace_prob: the probabilities that a masked token becomes the mask token, or a
            random token. The other masked tokens do not change.
        seed: the seed of the collator's own generator; by default the library's global generator is used.
        mask_padding: quadrat only: which labels of causal language modelling are -100: "token", every token that is the
            padding token, as in transformers; or "length", only the padding, so that labels keep an end-of-sequence
            token that serves as padding token. Tokens whose `attention_mask` is 0 in a row are padding, too.
        padding_free: quadrat only: no padding. The rows are joined, for attention that gets the row boundaries: a dict
            of `input_ids` and `labels`, `[1, total]` int64. They are masked as a batch of one row; for causal language
            modelling, labels are the ids with -100 for the first token of each row. `position_ids` follow, or what a
            `quadrat.Flattening` in place of True asks for, then the other columns that the tokenizer pads and those of
            `pad_values`, `[1, total]`. There is no attention mask. `pad_to_multiple_of` rounds `total` up. `align_to`
            needs `mlm=False`.
        rng: "torch" draws as transformers does. "philox", quadrat only, for masked language modelling: a row's mask
            depends on `seed` (None is 0), the epoch (see `set_epoch`), the row's key and the token's position in the
            row alone: not on other rows, padding, workers, processes or a resumed run. No generator is used.
        row_key: with "philox": the column with an integer per row, such as its number in the dataset, which the batch
            does not contain. By default the key is a 64-bit hash of the row's tokens: equal rows have equal masks
            within an epoch.

    Examples:
        >>> import quadrat, tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[MASK]": 1, "a": 2, "b": 3, "c": 4}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", mask_token="[MASK]")
        >>> rows = [{"input_ids": [2, 3, 4, 3]}, {"input_ids": [2, 3]}]
        >>> batch = quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False)(rows)
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[2, 3, 4, 3], [2, 3, 0, 0]], [[2, 3, 4, 3], [2, 3, -100, -100]])
        >>> masked = quadrat.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5, rng="philox", seed=3)(rows)
        >>> masked["input_ids"].tolist(), masked["labels"].tolist()
        ([[2, 3, 4, 1], [2, 4, 0, 0]], [[-100, -100, 4, 3], [-100, 3, -100, -100]])
    """

    mask_padding: Literal["token", "length"] = "token"
    rng: Literal["torch", "philox"] = "torch"
    row_key: str | None = None

    _imitates: ClassVar[Imitation] = Imitation(  # it makes labels itself
        _NAME, code_of(_NAME) + BARE_ROWS + PADDING, attributes=("generator",), labels=Role.OTHER
    )
    _takes_bare_rows: ClassVar[bool] = True
    # For each batch, whether it looks for a Trainer that sets no epoch; see `warn_of_one_epoch`.
    _quadrat_looks: ClassVar[Iterator[bool]] = itertools.repeat(True)

    def __post_init__(self) -> None:
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
        """The epoch that `set_epoch` set last; 0 at first."""
        return int(self._shared_epoch())

    def set_epoch(self, epoch: int) -> None:
        """Draw other masks from now on, also in DataLoader workers that are running; for `rng="philox"` only.

        `epoch` is 0 to 2**32 - 1, else a TypeError or ValueError. `quadrat.SetEpochCallback` calls this for Trainer.
        With `rng="torch"`, whose masks do not depend on the epoch, a UserWarning says so.
        """
        if self.rng == "torch":
            message = 'set_epoch changes nothing with rng="torch": give DataCollatorForLanguageModeling rng="philox"'
            warnings.warn(message, stacklevel=2)
        self._shared_epoch().set(epoch)

    def _shared_epoch(self) -> SharedEpoch:
        state, name = self.__dict__, "_quadrat_epoch"
        return state.get(name) or state.setdefault(name, SharedEpoch())  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "_quadrat_epoch" in self.__dict__:
            if self.rng == "philox" and self.mlm:
                philox.warn_of_one_epoch(self)  # a spawned worker does not see the Trainer
            state["_quadrat_epoch"] = copy.copy(self._shared_epoch())
        return state

    def torch_call(self, examples: Any) -> dict[str, Any]:
        """Collate `examples` into torch tensors."""
        if self.rng == "philox" and self.mlm:
            if next(self._quadrat_looks, True):
                philox.warn_of_one_epoch(self)
        elif self.seed is not None:
            self._make_generator("pt")
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate `examples` into NumPy arrays."""
        self._make_generator("np")
        return self._collate(examples, "np")

    def torch_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any | None = None, offset_mapping: Any | None = None
    ) -> tuple[Any, Any]:
        """Mask `inputs`, `[rows, width]`, in place; returns them and the labels, -100 where nothing was masked."""
        masked = mask_array(self, inputs, special_tokens_mask, offset_mapping, "pt")
        return super().torch_mask_tokens(inputs, special_tokens_mask, offset_mapping) if masked is None else masked

    def numpy_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any | None = None, offset_mapping: Any | None = None
    ) -> tuple[Any, Any]:
        """As `torch_mask_tokens`, on NumPy arrays."""
        masked = mask_array(self, inputs, special_tokens_mask, offset_mapping, "np")
        return super().numpy_mask_tokens(inputs, special_tokens_mask, offset_mapping) if masked is None else masked

    def _make_generator(self, framework: Framework) -> None:
        if self.seed is None or (self.mlm and self.rng == "philox"):
            return
        asked = framework if makes_fitting_generators() else None
        if lacks_generator(self, asked) and (asked or self.seed or zero_is_a_seed()):
            create_generator(self, asked)

    def _is_own(self, features: Any) -> bool:
        if super()._is_own(features):
            return True
        if (self.mlm and self.rng == "philox") or (not self.mlm and self.mask_padding == "length"):
            return True
        return self.mlm and self.whole_word_mask and "word_ids" in (names_of(features) or ())

    def _own_batch(self, features: Any, framework: Framework, why: Reason) -> Any:
        if self.mlm and self.rng == "philox" and not super()._is_own(features):
            return fall_back(self, philox.plain_call(self, self._reference(framework)), features, why)
        return super()._own_batch(features, framework, why)

    def _plan(self, features: Any, framework: Framework) -> Any:
        return model_language(self, features, framework)

    def _masks_itself(self, framework: Framework) -> bool:
        method = MASK_TOKENS[framework]
        ours = getattr(DataCollatorForLanguageModeling, method)
        return method in self.__dict__ or getattr(type(self), method) is not ours
