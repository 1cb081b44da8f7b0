"""DataCollatorForLanguageModeling == that of the installed transformers, down to the generators' states."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import ByT5Tokenizer, PerceiverTokenizer, PreTrainedTokenizerFast

import quadrat
from quadrat.masking.vocabulary import listed_special_ids
from support.compare import assert_identical, assert_same_outcome, assert_seeded_alike, both, outcome
from support.masking import OwnSpecialTokens, make_masking_tokenizer, make_pair, masking_features, masking_tokenizers

PROBABILITIES = st.sampled_from(
    [(0.8, 0.1)] * 3 + [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.3, 0.0), (0.0, 0.0), (0.25, 0.6)]
)
MASKING = st.fixed_dictionaries(
    {
        "mlm_probability": st.sampled_from([0.15, 0.15, 0.5, 0, 1, 0.9]),
        "replacement": PROBABILITIES,
        "pad_to_multiple_of": st.sampled_from([None, None, 1, 4, 8]),
        "return_tensors": st.sampled_from(["pt", "np"]),
        "seed": st.sampled_from([None, None, 0, 1, 12345]),
    }
)


@given(masking_tokenizers(), masking_features(), MASKING, st.integers(0, 2**32 - 1))
def test_masked(tokenizer, batch, options, seed):
    reference, collator = make_pair(tokenizer, options)
    assert_identical(reference, collator, batch, seed=seed)


@given(masking_tokenizers(), masking_features(), MASKING)
def test_causal(tokenizer, batch, options):
    reference, collator = make_pair(tokenizer, options | {"mlm": False})
    assert_identical(reference, collator, batch)


@pytest.mark.parametrize("deferred", [False, True], ids=["now", "deferred"])
@pytest.mark.parametrize("mlm", [False, True], ids=["causal", "masked"])
@pytest.mark.parametrize("last", [0, 2.5, True, None, "a", 2**70, [0]], ids=repr)
def test_special_tokens_masks_that_are_no_numbers(last, mlm, deferred):
    reference, collator = make_pair(make_masking_tokenizer(), {"mlm": mlm})
    collator.deferred = deferred
    rows = [[1, 0, last], [0]]
    batch = [{"input_ids": [8] * len(row), "special_tokens_mask": row} for row in rows]
    for _ in range(2):
        assert_seeded_alike(reference, (lambda rows: collator(rows).to("cpu")) if deferred else collator, batch, batch)


@pytest.mark.parametrize("mlm", [False, True], ids=["causal", "masked"])
@pytest.mark.parametrize("first", ["pt", "np"])
def test_generators_of_another_library_or_process(first, mlm):
    batch = [{"input_ids": list(range(8, 12)) * 20}]
    outcomes = []
    for collator in make_pair(make_masking_tokenizer(), {"mlm": mlm, "seed": 3, "return_tensors": first}):
        calls = {"pt": collator.torch_call, "np": collator.numpy_call}
        outcomes.append([outcome(calls[framework], batch) for framework in (first, "np", "pt", "pt")])
        collator._generator_pid = -1  # as in a process that is forked now
        outcomes[-1].append(outcome(calls[first], batch))
    for expected, got in zip(*outcomes, strict=True):
        assert_same_outcome(expected, got)


@given(st.integers(1, 6), st.integers(100, 900), MASKING)
def test_long_rows(count, length, options):
    """More draws than a generator makes at a time, and words that end anywhere between."""
    generator = np.random.default_rng(length)
    batch = [{"input_ids": generator.integers(0, 400, size=length + 7 * row).tolist()} for row in range(count)]
    assert_identical(*make_pair(make_masking_tokenizer(), options), batch, calls=3, seed=length)


CHANGES: dict[str, Any] = {
    "nothing": lambda collator: None,
    "probability": lambda collator: setattr(collator, "mlm_probability", 0.5),
    "replacement": lambda collator: setattr(collator, "mask_replace_prob", 0.2),
    "random": lambda collator: setattr(collator, "random_replace_prob", 0.0),
    "causal": lambda collator: setattr(collator, "mlm", False),
    "multiple": lambda collator: setattr(collator, "pad_to_multiple_of", 8),
    "seed": lambda collator: setattr(collator, "seed", 4),
    "generator": lambda collator: setattr(collator, "generator", torch.Generator().manual_seed(8)),
    "numpy generator": lambda collator: setattr(collator, "generator", np.random.default_rng(8)),
    "numpy": lambda collator: setattr(collator, "return_tensors", "np"),
    "new token": lambda collator: collator.tokenizer.add_tokens(["brand", "new"]),
    "new special token": lambda collator: collator.tokenizer.add_special_tokens(
        {"additional_special_tokens": ["w20", "w21"]}
    ),
    "special token": lambda collator: setattr(collator.tokenizer, "cls_token", "w9"),
    "mask token": lambda collator: setattr(collator.tokenizer, "mask_token", "[CLS]"),
    "pad token": lambda collator: setattr(collator.tokenizer, "pad_token", "[EOS]"),
    "own special tokens": lambda collator: setattr(collator.tokenizer, "__class__", OwnSpecialTokens),
    "own masking": lambda collator: setattr(
        collator, "torch_mask_tokens", lambda inputs, special_tokens_mask, offset_mapping: (inputs, inputs + 1)
    ),
    "side": lambda collator: setattr(collator.tokenizer, "padding_side", "left"),
}


@given(
    st.lists(st.tuples(masking_features(), st.sampled_from(["nothing"] * 9 + sorted(CHANGES))), min_size=2, max_size=6),
    MASKING,
)
def test_changes_between_batches(steps, options):
    reference, collator = make_pair(make_masking_tokenizer(), options)
    for seed, (batch, change) in enumerate([*steps, *steps]):
        assert_identical(reference, collator, batch, calls=1, seed=seed)
        if seed < len(steps):
            CHANGES[change](reference), CHANGES[change](collator)
    assert_identical(reference, collator, steps[0][0])


class OwnMasking:
    """A user's masking, over either class: everything that is no special token."""

    def torch_mask_tokens(self, inputs, special_tokens_mask=None, offset_mapping=None):
        labels = inputs.clone()
        inputs[special_tokens_mask == 0] = 3
        return inputs, labels


@given(masking_features())
def test_a_subclass_may_mask_in_its_own_way(batch):
    reference = type("Reference", (OwnMasking, transformers.DataCollatorForLanguageModeling), {})
    ours = type("Ours", (OwnMasking, quadrat.DataCollatorForLanguageModeling), {})
    tokenizer = make_masking_tokenizer()
    assert_identical(reference(tokenizer), ours(tokenizer), batch)


@pytest.mark.parametrize("framework", ["pt", "np"])
@given(st.data())
def test_mask_tokens_methods(framework, data):
    """The methods that scripts call by themselves: in place, with and without a mask of special tokens."""
    tokenizer = data.draw(masking_tokenizers())
    shape = data.draw(st.tuples(st.integers(0, 4), st.integers(0, 9)))
    ids = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 400, size=shape)
    special = data.draw(st.sampled_from([None, "array", "list", "bool"]))
    mask = ids % 3 == 0
    dtype = data.draw(st.sampled_from(["int64", "int64", "int32"]))
    reference, collator = make_pair(tokenizer, {"return_tensors": framework})

    def call(masker):
        inputs = ids.astype(dtype) if framework == "np" else torch.from_numpy(ids.astype(dtype))
        flags = {None: None, "array": mask.astype(np.int64), "list": mask.tolist(), "bool": mask}[special]
        if framework == "pt" and isinstance(flags, np.ndarray):
            flags = torch.from_numpy(flags)
        method = masker.torch_mask_tokens if framework == "pt" else masker.numpy_mask_tokens
        masked, labels = method(inputs, special_tokens_mask=flags)
        assert masked is inputs
        return {"inputs": masked, "labels": labels}

    assert_seeded_alike(call, call, reference, collator)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_a_special_token_far_outside_the_vocabulary(framework, capfd):
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2, "w3": 3, "[FAR]": 2**28 + 3}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")),
        **{"pad_token": "[PAD]", "mask_token": "[MASK]", "sep_token": "[FAR]"},
    )
    batch = [{"input_ids": [3, 2**28 + 3, 3, 3]}, {"input_ids": [3, 2**28 + 3]}]
    assert_identical(*make_pair(tokenizer, {"mlm_probability": 1, "return_tensors": framework}), batch)
    capfd.readouterr()  # the tokenizer of 4.57 has named every number that is no token: gigabytes, not to be reported


FAST = [
    name
    for name in ("PreTrainedTokenizerFast", "RemBertTokenizerFast", "BigBirdTokenizerFast", "PegasusTokenizerFast")
    if isinstance(getattr(transformers, name, None), type) and hasattr(transformers, "BigBirdTokenizerFast")
]


def special_ids_of(tokenizer: Any, count: int) -> list[int]:
    mask = tokenizer.get_special_tokens_mask(list(range(count)), already_has_special_tokens=True)
    return [token for token, special in enumerate(mask) if special]


@pytest.mark.parametrize("cls", [PerceiverTokenizer, ByT5Tokenizer])
def test_classes_without_a_backend(cls):
    tokenizer = cls()
    assert sorted(listed_special_ids(tokenizer)) == special_ids_of(tokenizer, len(tokenizer))


def test_fast_classes():
    assert FAST[0] == "PreTrainedTokenizerFast"
    for name in FAST:
        base = getattr(transformers, name)
        if not issubclass(base, PreTrainedTokenizerFast):
            continue
        tokenizer = make_masking_tokenizer()
        tokenizer.__class__ = base
        listed = listed_special_ids(tokenizer)
        assert listed is not None or name == "PegasusTokenizerFast", name
        assert listed is None or sorted(set(listed)) == special_ids_of(tokenizer, len(tokenizer)), name
        reference, collator = both("DataCollatorForLanguageModeling", tokenizer)
        assert_identical(reference, collator, [{"input_ids": list(range(60))}, {"input_ids": list(range(30))}])


class Inherits(PerceiverTokenizer):
    """Says nothing of its own."""


class AsksAbove(PerceiverTokenizer):
    """The words of a class of transformers, in a module that is not one."""

    def get_special_tokens_mask(self, token_ids_0, token_ids_1=None, already_has_special_tokens=False):
        if already_has_special_tokens:
            return super().get_special_tokens_mask(
                token_ids_0=token_ids_0, token_ids_1=token_ids_1, already_has_special_tokens=True
            )
        return []


class OtherIds(PerceiverTokenizer):
    all_special_ids = property(lambda self: [3])


def test_classes_of_the_user():
    assert listed_special_ids(Inherits()) is not None
    own_method = PerceiverTokenizer()
    own_method.get_special_tokens_mask = lambda *args, **options: [1]
    for tokenizer in (AsksAbove(), make_masking_tokenizer(cls=OwnSpecialTokens), own_method, OtherIds()):
        assert listed_special_ids(tokenizer) is None


@given(data=st.data())
def test_labels_by_length_leave_stored_padding_out(data):
    """Rows that come padded, on any side or with holes, and whose padding token may end sequences, too."""
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    rows = [
        {
            "input_ids": data.draw(st.lists(st.sampled_from([2, 5, 6]), min_size=n, max_size=n)),
            "attention_mask": data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)),
        }
        for n in lengths
    ]
    library = data.draw(st.sampled_from(["pt", "np"]))
    tokenizer, width = make_masking_tokenizer(), max(lengths)
    options = {"mlm": False, "mask_padding": "length", "return_tensors": library}
    batch = quadrat.DataCollatorForLanguageModeling(tokenizer, **options)(rows)
    labels = [[token if kept else -100 for token, kept in zip(*row.values(), strict=True)] for row in rows]
    gaps = [[-100] * (width - n) for n in lengths]
    left = tokenizer.padding_side == "left"
    assert batch["labels"].tolist() == [[*g, *row] if left else [*row, *g] for row, g in zip(labels, gaps, strict=True)]
