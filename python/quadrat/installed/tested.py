"""What quadrat was tested with. `make matrix ARGS=--record` writes this; see docs/compatibility.md."""

from __future__ import annotations

# Package -> oldest and newest version.
RANGES: dict[str, tuple[str, str]] = {
    "transformers": ("4.57", "5.23"),
    "torch": ("2.2", "2.15"),
    "numpy": ("1.25", "2.4"),
    "datasets": ("3.0", "5.2"),
    "pyarrow": ("15.0", "26.0"),
    "tokenizers": ("0.22", "0.23"),
}

# Code of transformers -> its fingerprints in the tested versions, see quadrat.installed.source.
FINGERPRINTS: dict[str, tuple[str, ...]] = {
    "BatchEncoding.convert_to_tensors": (
        "5f928e329fed0708",
        "c11c65cd6e7f33b4",
    ),
    "BatchRebalanceSampler": ("5abd9eaea431a8ac",),
    "DataCollatorForLanguageModeling": (
        "ce9ee8e8b1844647",
        "9f64c6715abe84c3",
        "789a0f68eae0d706",
    ),
    "DataCollatorForMultipleChoice": (
        "b3da81737e8a4951",
        "e43931d26d8982f2",
        "c2af28990546ffc4",
    ),
    "DataCollatorForPermutationLanguageModeling": (
        "df1cb1e92f9baf39",
        "f5e03f071d14a4e9",
    ),
    "DataCollatorForSeq2Seq": (
        "976cd7dc7b8a8169",
        "0312b1723f95ec31",
    ),
    "DataCollatorForTokenClassification": (
        "ad5d0a00ab9bb6ad",
        "e901bd23a3f3b6cc",
        "a8983a538a270394",
    ),
    "DataCollatorForWholeWordMask": ("a12dad62d87c66e7",),
    "DataCollatorMixin": (
        "a0c2416905514c93",
        "cc7e5fa66c621efe",
    ),
    "DataCollatorWithFlattening": (
        "348d3afbee32ec53",
        "0810e79784fbde6c",
        "ab26146fe4e88706",
    ),
    "DataCollatorWithPadding": ("5f8811f572410c4d",),
    "DefaultDataCollator": ("d1688695ca1ad8a6",),
    "DistributedLengthGroupedSampler": (
        "68adb3a2a687d44d",
        "7679011c87fd40d6",
        "7a51977d606072b5",
    ),
    "EvalLoopContainer": ("78da5ee4b0f4b59b",),
    "LengthGroupedSampler": (
        "526865b5dce3a112",
        "89467ee2a264418b",
        "efe3ff70870b833b",
    ),
    "PreTrainedTokenizerBase._get_padding_truncation_strategies": (
        "a401166aa640ad76",
        "a25445d229fce531",
    ),
    "PreTrainedTokenizerBase._pad": (
        "61fe7b33d1e1c3a7",
        "abed706870a3385d",
    ),
    "PreTrainedTokenizerBase.pad": (
        "d0e56c3d23dc3c1c",
        "4edae2615baa4664",
        "5388a6cee88fe7e1",
    ),
    "_numpy_collate_batch": (
        "762deae7aad0eac0",
        "de33e6f2c01fa6e5",
    ),
    "_torch_collate_batch": (
        "e4dfc07e56d3c331",
        "a4f621b8c1942f9c",
    ),
    "atleast_1d": (
        "18f6757d1df7ca26",
        "bc481fa21b4e2ec3",
        "4109fa4b5a209015",
    ),
    "default_data_collator": (
        "509dfa45397d6f70",
        "b9e2072a4b2fbaba",
    ),
    "get_length_grouped_indices": ("628e59bbb44fed43",),
    "nested_concat": ("c028688a6164f641",),
    "nested_numpify": ("dfafe7ff281f62f8",),
    "numpy_default_data_collator": (
        "beb50106160d466a",
        "1a5e5600c2675e1a",
    ),
    "numpy_pad_and_concatenate": ("6b8342576f988908",),
    "pad_without_fast_tokenizer_warning": ("3b23719fb86d4b9e",),
    "tolist": (
        "45f5723fff36fd19",
        "91e669278a1c27a6",
    ),
    "torch_default_data_collator": (
        "608af1a7f7772793",
        "965ab0f88b554519",
    ),
    "torch_pad_and_concatenate": ("17090a01b6711405",),
}
