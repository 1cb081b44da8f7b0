# The public names, and where each is at home: read at run time too.
import quadrat.config  # reachable, and not one of the names that most users type
import quadrat.deferred
import quadrat.model  # noqa: F401 - as well
from quadrat import batching as batching
from quadrat import data as data
from quadrat import evaluation as evaluation
from quadrat import tokenizers as tokenizers
from quadrat import trl as trl
from quadrat._core import __version__ as __version__
from quadrat.batching.lengths import lengths as lengths
from quadrat.batching.token_budget import TokenBudgetBatchSampler as TokenBudgetBatchSampler
from quadrat.collators.default import DefaultDataCollator as DefaultDataCollator
from quadrat.collators.default import default_data_collator as default_data_collator
from quadrat.collators.flattening import DataCollatorWithFlattening as DataCollatorWithFlattening
from quadrat.collators.language_modeling import DataCollatorForLanguageModeling as DataCollatorForLanguageModeling
from quadrat.collators.padding import DataCollatorForMultipleChoice as DataCollatorForMultipleChoice
from quadrat.collators.padding import DataCollatorForSeq2Seq as DataCollatorForSeq2Seq
from quadrat.collators.padding import (
    DataCollatorForTokenClassification as DataCollatorForTokenClassification,
)
from quadrat.collators.padding import DataCollatorWithPadding as DataCollatorWithPadding
from quadrat.collators.permutation import (
    DataCollatorForPermutationLanguageModeling as DataCollatorForPermutationLanguageModeling,
)
from quadrat.collators.whole_word import DataCollatorForWholeWordMask as DataCollatorForWholeWordMask
from quadrat.data.arrow import ArrowDataset as ArrowDataset
from quadrat.data.packed import PackedDataset as PackedDataset
from quadrat.data.streams import BatchedStream as BatchedStream
from quadrat.integration.batch_by_tokens import batch_by_tokens as batch_by_tokens
from quadrat.integration.callback import SetEpochCallback as SetEpochCallback
from quadrat.integration.from_transformers import from_transformers as from_transformers
from quadrat.integration.patch import patch as patch
from quadrat.integration.patch_transformers import patch_transformers as patch_transformers
from quadrat.integration.remove_padding import remove_padding as remove_padding
from quadrat.model.packing_check import check_packing as check_packing
from quadrat.ops.aligned import align as align
from quadrat.ops.flatten import flatten as flatten
from quadrat.ops.flattening import Flattening as Flattening
from quadrat.ops.mask_tokens import mask_tokens as mask_tokens
from quadrat.ops.pad import attention_mask as attention_mask
from quadrat.ops.pad import pad as pad
from quadrat.ops.unpad import unpad as unpad
from quadrat.ragged import Ragged as Ragged
from quadrat.support.counts import stats as stats
