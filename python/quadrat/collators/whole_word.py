"""`DataCollatorForWholeWordMask`: masked language modelling by whole words, as transformers 4.x does it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from quadrat.collators._base import MixinCollator, with_used_options
from quadrat.installed import originals
from quadrat.installed.whole_word_mask_4 import Reference
from quadrat.masking.word_masking import mask_words
from quadrat.planning.diagnosis import NO_FEATURES
from quadrat.planning.fallback import raise_clearer
from quadrat.support.generators import create_generator
from quadrat.support.kinds import Framework

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class DataCollatorForWholeWordMask(MixinCollator, Reference):
    """Mask whole words, where "##..." continues a word; the class of transformers 4.x, also available on 5.x.

    Features are mappings with `input_ids`, or bare rows of ids. A column `chinese_ref` may name the positions that
    continue the word before them; other columns are left out. The result is a dict of `input_ids` and `labels`, int64,
    `[rows, width]`; labels are -100 where nothing is masked. Words are shuffled by Python's `random`, or with a `seed`
    by the collator's own generator.

    Args:
        tokenizer: a tokenizer of transformers with a mask token.
        mlm, whole_word_mask: ignored, as in transformers: words are always masked.
        mlm_probability, mask_replace_prob, random_replace_prob, pad_to_multiple_of, return_tensors, seed, deferred: as
            in `DataCollatorForLanguageModeling`, of words.

    Raises:
        ValueError, TypeError, AttributeError, ...: as in transformers, with hints added.

    Examples:
        >>> import quadrat, tokenizers, transformers
        >>> words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "bark": 5, "##ing": 6, "dogs": 7}
        >>> pieces = tokenizers.Tokenizer(tokenizers.models.WordPiece(words))
        >>> pieces.normalizer = tokenizers.normalizers.BertNormalizer()
        >>> tokenizer = transformers.BertTokenizerFast(tokenizer_object=pieces)
        >>> collator = quadrat.DataCollatorForWholeWordMask(
        ...     tokenizer, mlm_probability=0.5, mask_replace_prob=1.0, random_replace_prob=0.0
        ... )
        >>> batch = collator([[2, 7, 5, 6, 3]])
        >>> masked = batch["input_ids"] == tokenizer.mask_token_id
        >>> bool(masked[0, 2] == masked[0, 3])  # "bark" and "##ing" are masked together
        True
    """

    _imitates: ClassVar[str] = "DataCollatorForWholeWordMask"
    _takes_bare_rows: ClassVar[bool] = True
    _quadrat_guarded: ClassVar[tuple[str, ...]] = (
        *("tokenizer", "mlm_probability", "mask_replace_prob", "random_replace_prob", "seed", "generator"),
        *("return_tensors", "pad_to_multiple_of", "deferred"),
    )
    _lacks: ClassVar[Mapping[str, str]] = {
        "rng": "words are shuffled, not drawn one by one; DataCollatorForLanguageModeling(whole_word_mask=True) has it"
    }

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0917 - as in transformers
            self,
            tokenizer: PreTrainedTokenizerBase,
            mlm: bool = True,
            whole_word_mask: bool = False,
            mlm_probability: float | None = 0.15,
            mask_replace_prob: float = 0.8,
            random_replace_prob: float = 0.1,
            pad_to_multiple_of: int | None = None,
            return_tensors: str = "pt",
            seed: int | None = None,
            *,
            deferred: bool = False,
        ) -> None: ...

    else:

        def __init__(self, *args: Any, deferred: bool = False, **kwargs: Any) -> None:
            try:
                super().__init__(*args, **kwargs)
            except Exception as error:
                raise_clearer(error, NO_FEATURES, self)
            self.deferred = deferred

        __init__.__signature__ = inspect.signature(__init__).replace(
            parameters=[
                *inspect.signature(originals.DataCollatorForLanguageModeling.__init__).parameters.values(),
                inspect.signature(__init__).parameters["deferred"],
            ]
        )

    def __repr__(self) -> str:
        return with_used_options(super().__repr__(), self, DataCollatorForWholeWordMask, ("deferred",))

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate and mask `examples` into NumPy arrays."""
        return self._collate(examples, "np")

    def _collate(self, features: Any, framework: Any) -> dict[str, Any]:
        if self.seed and self.generator is None:
            create_generator(self)
        return super()._collate(features, framework)

    def _plan(self, features: Any, framework: Framework) -> Any:
        return mask_words(self, features, framework)
