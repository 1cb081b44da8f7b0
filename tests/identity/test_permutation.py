"""DataCollatorForPermutationLanguageModeling == that of the installed transformers, generators included."""

import functools
import random
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

import quadrat
from support.compare import (
    assert_identical,
    assert_same_batch,
    both,
    generator_states,
    outcome,
    seed_everything,
)
from support.strategies import ROW_FORMS, WRAPPERS, word_level

NAME = "DataCollatorForPermutationLanguageModeling"
SPECIAL = ["[PAD]", "[UNK]", "[EOS]", "[MASK]", "[CLS]", "<extra>"]
VOCABULARY = {**{token: i for i, token in enumerate(SPECIAL)}, **{f"w{i}": i for i in range(len(SPECIAL), 400)}}
FRAMEWORKS = st.sampled_from(["pt", "np"])


class EvenIsSpecial(PreTrainedTokenizerFast):
    """A tokenizer that overrides `get_special_tokens_mask`, as most slow ones do."""

    def get_special_tokens_mask(self, token_ids_0: Any, token_ids_1: Any = None, **_: Any) -> list[int]:
        return [int(token % 2 == 0) for token in token_ids_0]


class TooFew(PreTrainedTokenizerFast):
    def get_special_tokens_mask(self, token_ids_0: Any, token_ids_1: Any = None, **_: Any) -> list[int]:
        return [0]


class Refuses(PreTrainedTokenizerFast):
    def get_special_tokens_mask(self, token_ids_0: Any, token_ids_1: Any = None, **_: Any) -> list[int]:
        raise LookupError("not without the text")


class EosIsSpecial(PreTrainedTokenizerFast):
    @property
    def all_special_ids(self) -> list[int]:
        return [2, 5]


def make_tokenizer(**options: Any) -> Any:
    tokens = {"cls_token": "[CLS]", "mask_token": "[MASK]", "pad_token_type_id": 3, **options}  # 3 as XLNet's
    return word_level(VOCABULARY, **tokens)


TOKENIZERS = st.builds(
    make_tokenizer,
    padding_side=st.sampled_from(["left"] * 6 + ["right"] * 4 + ["middle"]),
    pad_token=st.sampled_from(["[PAD]"] * 8 + ["[EOS]"] * 3 + ["w9", None]),
    mask_token=st.sampled_from(["[MASK]"] * 12 + ["[UNK]", None]),
    cls=st.sampled_from([PreTrainedTokenizerFast] * 8 + [EvenIsSpecial] * 3 + [EosIsSpecial, TooFew, Refuses]),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "plm_probability": st.sampled_from([1 / 6, 1 / 6, 0.15, 0.3, 0.49, 1.0, 1, 0.9, 1 / 40, 1e-7, 1e-300, "no"])
        | st.floats(0.01, 1),
        "max_span_length": st.sampled_from([5, 5, 1, 2, 3, 9, 40, 5000, 2.0, True]),
    },
)
_TOKENS = st.integers(0, 30) | st.integers(0, 399) | st.sampled_from([-1, -100, 2**40])


@st.composite
def rows(draw: Any, *, odd: bool = True) -> list[Any]:
    """Lists, arrays or tensors of ids, mostly of an even width in the end, sometimes with something wrong."""
    longest = draw(st.sampled_from([2, 4, 6, 10, 24, 64] + ([0, 1, 7] if odd else [])))
    others = draw(st.lists(st.just(longest) | st.integers(min(1, longest), longest), max_size=4))
    lengths = draw(st.permutations([longest, *others]))
    batch: list[Any] = [draw(st.lists(_TOKENS, min_size=n, max_size=n)) for n in lengths]
    form = draw(st.sampled_from(["list"] * 6 + ["tuple", "array", "tensor", "int32", "reversed", "tensor32", "mixed"]))
    if not odd and form not in ("tuple", "array", "tensor"):
        return batch
    if form == "mixed":
        return [ROW_FORMS[draw(st.sampled_from(["list", "array", "tuple", "tensor"]))](row) for row in batch]
    batch = [ROW_FORMS[form](row) for row in batch]
    if not odd:
        return batch
    if draw(st.integers(0, 12)) == 0 and longest:
        batch[draw(st.integers(0, len(batch) - 1))] = draw(
            st.sampled_from([[], [1.5] * longest, [True] * longest, None, "text", [[1]], [2**63], np.zeros(0)])
        )
    return batch


@st.composite
def batches(draw: Any) -> list[Any]:
    bare_rows = draw(rows())
    form = draw(st.sampled_from(["bare", "bare", "dict", "dict", *WRAPPERS]))
    if form == "bare":
        return bare_rows if draw(st.integers(0, 9)) else tuple(bare_rows)  # type: ignore[return-value]
    wrapped = [WRAPPERS[form]({"input_ids": row, "labels": [1] * i, "text": "a"}) for i, row in enumerate(bare_rows)]
    if draw(st.integers(0, 15)) == 0:
        wrapped[-1] = WRAPPERS[form]({"ids": [1]})
    return wrapped


pair = functools.partial(both, NAME)


def assert_draws_alike(reference: Any, collator: Any, features: Any, *, framework: str, number: int) -> None:
    calls = (functools.partial(instance, return_tensors=framework) for instance in (reference, collator))
    assert_identical(*calls, features, seed=number)


def fails_in_time(options: dict[str, Any]) -> bool:
    """Where a span reserves nothing the reference may never come to an end."""
    return options.get("plm_probability", 0.1) == "no" or options.get("plm_probability", 0.1) <= 1


@given(TOKENIZERS, OPTIONS.filter(fails_in_time), batches(), FRAMEWORKS, st.integers(0, 2**31))
def test_batches(tokenizer, options, features, framework, number):
    reference, collator = pair(tokenizer, **options)
    assert_draws_alike(reference, collator, features, framework=framework, number=number)


@given(rows(odd=False), FRAMEWORKS, st.integers(0, 99), st.integers(1, 8), st.floats(0.05, 1))
def test_usual_batches(features, framework, number, longest, probability):
    reference, collator = pair(make_tokenizer(), max_span_length=longest, plm_probability=probability)
    assert_draws_alike(reference, collator, features, framework=framework, number=number)


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("probability", [1.2, 1.5, 2, 7.0, 0, 0.0, -0.5, float("nan"), float("inf"), None])
@pytest.mark.parametrize("longest", [0, -1, 1, None])
def test_options_with_which_spans_do_not_fit(framework, probability, longest):
    if framework == "np" and longest == 0 and probability in (1.2, 1.5, 2, 7.0, float("inf")):
        pytest.skip("the reference does not end")
    if framework == "np" and probability in (7.0, float("inf")) and longest == 1:
        pytest.skip("the reference ends by chance at best")
    reference, collator = pair(make_tokenizer(), max_span_length=longest, plm_probability=probability)
    assert_draws_alike(reference, collator, [[7] * 2], framework=framework, number=3)


@given(TOKENIZERS, rows(odd=False), FRAMEWORKS, st.sampled_from(["as is", "odd", "int32", "strided", "1d", "3d"]))
def test_mask_tokens(tokenizer, id_rows, framework, form):
    width = max(map(len, id_rows))
    batch: Any = np.array([[*map(int, row), *[0] * (width - len(row))] for row in id_rows], np.int64)
    batch = {"odd": batch[:, 1:], "int32": batch.astype(np.int32), "1d": batch[0], "3d": batch[None]}.get(form, batch)
    method = "torch_mask_tokens" if framework == "pt" else "numpy_mask_tokens"
    results = []
    for collator in pair(tokenizer):
        inputs = torch.from_numpy(batch.copy()) if framework == "pt" else batch.copy()
        inputs = inputs if form != "strided" else inputs.repeat_interleave(2, 1)[:, ::2] if framework == "pt" else (
            np.repeat(inputs, 2, axis=1)[:, ::2]
        )  # fmt: skip
        seed_everything(5)
        kind, output = outcome(getattr(collator, method), inputs)
        results.append((kind, output, inputs, generator_states()))
    (kind, expected, masked, states), (our_kind, got, ours, our_states) = results
    assert (kind, states) == (our_kind, our_states)
    assert_same_batch(masked, ours, "inputs")
    if kind == "raised":
        assert type(got) is type(expected)
        return
    for name, array, other in zip(["inputs", "perm_mask", "target_mapping", "labels"], expected, got, strict=True):
        assert_same_batch(array, other, name)
    assert (got[0] is ours) == (expected[0] is masked)


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("cls", [PreTrainedTokenizerFast, EvenIsSpecial])
def test_large_batches(framework, cls):
    chance = random.Random(1)
    features = [{"input_ids": [chance.randrange(400) for _ in range(n)]} for n in (1300, 7, 900, 1300)]
    reference, collator = pair(make_tokenizer(padding_side="left", cls=cls))
    assert_draws_alike(reference, collator, features, framework=framework, number=3)


def test_draws_from_the_state_that_is_there():
    reference, collator = pair(make_tokenizer())
    for framework in ("pt", "np"):
        for used in (0, 1, 623, 624, 625):
            states = []
            for instance in (reference, collator):
                seed_everything(9)
                torch.rand(used), np.random.rand(used), [random.random() for _ in range(used)]
                torch.randn(3), np.random.randn(3), random.gauss(0, 1)
                batch = instance([[7] * 40, [8] * 13], return_tensors=framework)
                states.append((generator_states(), [value.tolist() for value in batch.values()]))
            assert states[0] == states[1]


def test_other_bit_generators():
    kept = np.random.get_bit_generator()
    results = []
    try:
        for collator in pair(make_tokenizer()):
            np.random.set_bit_generator(np.random.PCG64(3))
            random.seed(1)
            results.append([value.tobytes() for value in collator([[7] * 40, [8] * 13], return_tensors="np").values()])
            results[-1].append(np.random.get_bit_generator().state)
    finally:
        np.random.set_bit_generator(kept)
    assert results[0] == results[1]


def subclass(base: Any) -> Any:
    class Masks(base):
        def torch_mask_tokens(self, inputs: Any) -> Any:
            return (*super().torch_mask_tokens(inputs)[:3], inputs + torch.randint(9, (1,)))

        def numpy_mask_tokens(self, inputs: Any) -> Any:
            return (*super().numpy_mask_tokens(inputs)[:3], inputs + random.randint(0, 9))

    return Masks


@given(batches(), FRAMEWORKS)
def test_subclasses_mask_in_their_own_way(features, framework):
    reference, collator = (subclass(getattr(module, NAME))(make_tokenizer()) for module in (transformers, quadrat))
    assert_draws_alike(reference, collator, features, framework=framework, number=1)


def test_masks_of_the_instance_are_asked():
    collator = pair(make_tokenizer())[1]
    collator.torch_mask_tokens = lambda inputs: (inputs, 1, 2, 3)
    assert collator([[7, 8]])["labels"] == 3


def test_special_tokens_of_the_instance_are_asked():
    tokenizer = make_tokenizer()
    tokenizer.get_special_tokens_mask = lambda row, **_: [int(token < 100) for token in row]
    reference, collator = pair(tokenizer)
    features = [list(range(80, 144)), list(range(3, 40))]
    for framework in ("pt", "np"):
        assert_draws_alike(reference, collator, features, framework=framework, number=1)


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("cls", [EvenIsSpecial, EosIsSpecial])
def test_such_tokenizers_do_not_fall_back(framework, cls):
    quadrat.stats(reset=True)
    pair(make_tokenizer(cls=cls))[1]([[7, 8, 9], [7, 8, 9, 10]], return_tensors=framework)
    assert quadrat.stats().fell_back == 0
