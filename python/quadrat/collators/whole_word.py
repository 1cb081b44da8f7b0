"""`DataCollatorForWholeWordMask`: that of transformers 4.x; on 5.x, language modelling that masks words by offsets."""

from typing import TYPE_CHECKING

from quadrat.collators.language_modeling import DataCollatorForLanguageModeling
from quadrat.installed.originals import ORIGINALS

if not TYPE_CHECKING and "DataCollatorForWholeWordMask" in ORIGINALS:
    from quadrat.collators.whole_word_4 import DataCollatorForWholeWordMask
else:

    class DataCollatorForWholeWordMask(DataCollatorForLanguageModeling):
        """Mask whole words, as the class of early transformers 5.x does; on 4.57, as that of 4.x does.

        It is a `DataCollatorForLanguageModeling`, and has its options; `mlm` and `whole_word_mask` are always True. A
        column `offset_mapping` or `word_ids` says which tokens are a word. With transformers 4.57, it is a token that
        begins with "##" that continues a word.

        Args:
            tokenizer: a tokenizer with a mask token.

        Raises:
            IndexError: as in transformers, for rows without a column that says where words are.

        Examples:
            >>> import quadrat, tokenizers, transformers
            >>> words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "bark": 5, "##ing": 6, "dogs": 7}
            >>> pieces = tokenizers.Tokenizer(tokenizers.models.WordPiece(words))
            >>> tokenizer = transformers.BertTokenizerFast(tokenizer_object=pieces)
            >>> collator = quadrat.DataCollatorForWholeWordMask(
            ...     tokenizer, mask_replace_prob=1.0, random_replace_prob=0.0
            ... )
            >>> offsets = [(0, 0), (0, 4), (5, 9), (9, 12), (0, 0)]
            >>> batch = collator([{"input_ids": [2, 7, 5, 6, 3], "offset_mapping": offsets}])
            >>> masked = batch["input_ids"] == tokenizer.mask_token_id
            >>> bool(masked[0, 2] == masked[0, 3])  # "bark" and "##ing" are masked together
            True
        """

        def __post_init__(self) -> None:
            super().__post_init__()
            self.mlm = self.whole_word_mask = True
