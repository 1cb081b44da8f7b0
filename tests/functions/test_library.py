"""torch.ops.quadrat: operators pass the checks of torch, keep whole graphs, have derivatives, check what they get."""

import warnings

import pytest
import torch

import quadrat
from quadrat.ops import tokens

pytest.importorskip("quadrat.ops.library", reason="needs torch 2.4", exc_type=ImportError)
ops = torch.ops.quadrat
OFFSETS = torch.tensor([0, 2, 2, 5])
SIDES = pytest.mark.parametrize("left", [False, True])


def floats(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


CASES = {
    "pad": (ops.pad.default, (floats(5, 3), OFFSETS, 4, 1.5, True)),
    "pad ints": (ops.pad.default, (torch.arange(5), OFFSETS, 7)),
    "pad bfloat16": (ops.pad.default, (floats(5, 2, dtype=torch.bfloat16), OFFSETS, 3)),
    "unpad": (ops.unpad.default, (floats(3, 4, 2), OFFSETS, 5, True)),
    "unpad bools": (ops.unpad.default, (torch.ones(3, 4, dtype=torch.bool), OFFSETS, 5)),
    "flatten": (ops.flatten.default, (torch.arange(5), OFFSETS, 8, 1, 9)),
    "mask_tokens": (ops.mask_tokens.default, (torch.arange(50).reshape(5, 10), 3, 99, 0.5)),
    "take_tokens": (ops.take_tokens.default, (floats(5, 3), torch.tensor([4, 0]))),
    "put_tokens": (ops.put_tokens.default, (floats(2, 3), torch.tensor([4, 0]), 6)),
    "mask_layout": (ops.mask_layout.default, (torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]),)),
}


@pytest.mark.parametrize("case", CASES)
def test_passes_the_checks_of_torch(case):
    operator, arguments = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, while it traces
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")  # likewise
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


@SIDES
def test_gives_what_the_functions_give(left):
    side = "left" if left else "right"
    values = torch.arange(10).reshape(5, 2)
    rows = quadrat.Ragged(values, OFFSETS)
    padded = ops.pad(values, OFFSETS, 6, 9, left)
    assert torch.equal(padded, quadrat.pad(rows, max_length=6, padding_value=9, padding_side=side))
    assert torch.equal(ops.unpad(padded, OFFSETS, 5, left), values)
    assert torch.equal(ops.unpad(padded, OFFSETS + 1, 8, left)[1:6], values)
    assert ops.unpad(padded, OFFSETS + 1, 8, left)[[0, 6, 7]].tolist() == [[0, 0]] * 3
    for got, expected in zip(ops.flatten(values, OFFSETS, 8, 1, 9), quadrat.flatten(
        rows, pad_to_multiple_of=8, position_ids_start=1, padding_value=9
    ), strict=False):  # fmt: skip
        assert torch.equal(got, expected)
    ids = torch.arange(60).reshape(4, 15)
    arguments = {"mask_token_id": 3, "vocab_size": 99, "mlm_probability": 0.5, "seed": 2**64 - 5, "epoch": 2}
    lengths = torch.tensor([15, 0, 7, 1])
    expected = quadrat.mask_tokens(
        ids, rng="philox", lengths=lengths, padding_side=side, special_ids=[7, 8], **arguments
    )
    got = ops.mask_tokens(ids, 3, 99, 0.5, 0.8, 0.1, -5, 2, [7, 8], None, None, lengths, left)
    assert torch.equal(got[0], expected.input_ids)
    assert torch.equal(got[1], expected.labels)


# Of `[3, 4, 2]` numbers: those of three rows, or of `[5, 2]` or `[7, 2]` that are stored without padding.
MASK, PICKED, PLACES = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]), [2, 0], torch.tensor([4, 0, 2])
DERIVED = {
    "ops.pad": lambda x: ops.pad(x.flatten(0, 1)[:5], OFFSETS, 4, 0.5, True),
    "ops.pad, values outside the rows": lambda x: ops.pad(x.flatten(0, 1)[:7], OFFSETS + 1, 4),
    "ops.unpad": lambda x: ops.unpad(x, OFFSETS, 5),
    "ops.unpad, left": lambda x: ops.unpad(x, OFFSETS, 5, True),
    "ops.take_tokens": lambda x: ops.take_tokens(x, torch.tensor(PICKED)),
    "ops.put_tokens": lambda x: ops.put_tokens(x, PLACES, 6),
    "pad": lambda x: quadrat.pad(quadrat.Ragged(x.flatten(0, 1)[:5], OFFSETS), pad_to_multiple_of=4, padding_value=3),
    "pad, left": lambda x: quadrat.pad(quadrat.Ragged(x.flatten(0, 1)[:5], OFFSETS), padding_side="left"),
    "unpad": lambda x: quadrat.unpad(x, lengths=torch.tensor([2, 0, 3])).values,
    "unpad, left": lambda x: quadrat.unpad(x, lengths=[2, 0, 3], padding_side="left").values,
    "unpad by a mask": lambda x: quadrat.unpad(x, mask=MASK).values,
    "align": lambda x: quadrat.align(OFFSETS, x.flatten(0, 1)[:5], pad_to_multiple_of=4).values[0],
    "take": lambda x: tokens.take(x, torch.tensor(PICKED)),
    "take of two dimensions": lambda x: tokens.take(x, PLACES, 2),
    "put": lambda x: tokens.put(x, PLACES, (6,)),
    "put in two dimensions": lambda x: tokens.put(x, PLACES, (2, 3)),
}


@pytest.mark.parametrize("name", DERIVED)
def test_first_and_second_derivatives(name):
    x, function = floats(3, 4, 2), DERIVED[name]

    def squares(x):
        made = function(x)
        return tuple(one.square() for one in (made if isinstance(made, tuple) else (made,)))

    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(squares, x)
    with torch.no_grad():
        made = function(x)
        assert not (made[0] if isinstance(made, tuple) else made).requires_grad


def test_the_functions_compile_whole():
    def model(values, offsets, lengths, mask):
        padded = quadrat.pad(quadrat.Ragged(values, offsets), max_length=4, padding_value=1)
        return quadrat.unpad(padded * 2, lengths=lengths, total=5).values, quadrat.unpad(padded, mask=mask).values

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    values, lengths = floats(5, 2), OFFSETS.diff()
    doubled, kept = compiled(values, OFFSETS, lengths, torch.arange(4) < lengths[:, None])
    assert torch.equal(doubled, values * 2)
    assert torch.equal(kept, values)


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (ValueError, lambda: ops.pad(torch.arange(5), OFFSETS, 2), "length=2 is below the longest row"),
        (ValueError, lambda: ops.pad(torch.arange(5), torch.tensor([0, 9]), 9), "offsets must be from 0 to 5"),
        (OverflowError, lambda: ops.pad(torch.arange(5, dtype=torch.int8), OFFSETS, 3, 300), "does not fit"),
        (ValueError, lambda: ops.unpad(torch.zeros(3, 2), OFFSETS, 5), "row 2 is longer than the padded length"),
        (ValueError, lambda: ops.unpad(torch.zeros(3, 4), OFFSETS, 4), r"but offsets\[2\] is"),
        (ValueError, lambda: ops.flatten(torch.arange(5), OFFSETS, 4), "total_length=4 is below the 5 tokens"),
    ],
)
def test_bad_arguments_are_named(error, call, message):
    with pytest.raises(error, match=message):
        call()


VALUES, PADDED = torch.arange(5), torch.arange(12).reshape(3, 4)
IDS, FLOATS = torch.arange(6).reshape(2, 3), torch.tensor([0.0, 2, 2, 5])
STATIC = [
    (lambda m: ops.pad(m(VALUES), m(FLOATS), 4), "offsets must be integers in one dimension, not torch.float32"),
    (lambda m: ops.pad(m(VALUES), m(OFFSETS.bool()), 4), "offsets must be integers"),
    (lambda m: ops.pad(m(VALUES), m(OFFSETS[None]), 4), "one more entry than rows"),
    (lambda m: ops.pad(m(VALUES), m(OFFSETS[:0]), 4), "one more entry than rows"),
    (lambda m: ops.pad(m(VALUES[0]), m(OFFSETS), 4), "at least one dimension"),
    (lambda m: ops.pad(m(VALUES), m(OFFSETS), -1), "must not be negative, but is -1"),
    (lambda m: ops.unpad(m(PADDED), m(OFFSETS[:3]), 5), "there must be 4 offsets, not 3"),
    (lambda m: ops.unpad(m(PADDED), m(OFFSETS[:0]), 5), "there must be 4 offsets, not 0"),
    (lambda m: ops.unpad(m(PADDED), m(OFFSETS.repeat(2)), 5), "there must be 4 offsets, not 8"),
    (lambda m: ops.unpad(m(PADDED), m(OFFSETS[:, None]), 5), "offsets must be integers in one dimension"),
    (lambda m: ops.unpad(m(PADDED), m(FLOATS), 5), "offsets must be integers in one dimension"),
    (lambda m: ops.unpad(m(VALUES), m(OFFSETS), 5), "padded must have rows and tokens"),
    (lambda m: ops.unpad(m(PADDED), m(OFFSETS), -5), "must not be negative, but is -5"),
    (lambda m: ops.flatten(m(VALUES), m(FLOATS), 5), "offsets must be integers"),
    (lambda m: ops.flatten(m(VALUES), m(OFFSETS[:1]), 5), "total=5, but there is no row"),
    (lambda m: ops.mask_tokens(m(IDS.float()), 3, 99), "input_ids must be integers"),
    (lambda m: ops.mask_tokens(m(IDS), 3, 99, lengths=m(torch.tensor([1.0, 2]))), "lengths must be integers"),
    (lambda m: ops.mask_tokens(m(IDS), 3, 99, lengths=m(VALUES)), "there must be 2 lengths, not 5"),
    (lambda m: ops.mask_tokens(m(IDS), 3, 99, row_keys=m(IDS)), "row_keys must be integers in one dimension"),
    (lambda m: ops.mask_tokens(m(IDS), 3, 99, special_tokens_mask=m(IDS[:1])), "special_tokens_mask must be"),
    (lambda m: ops.mask_tokens(m(IDS), 3, 99, special_tokens_mask=m(IDS.float())), "special_tokens_mask must be"),
]


@pytest.mark.parametrize("place", [torch.clone, lambda tensor: tensor.to("meta")], ids=["cpu", "meta"])
@pytest.mark.parametrize(("call", "message"), STATIC)
def test_shapes_and_dtypes(call, message, place):
    with pytest.raises(ValueError, match=message):
        call(place)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: ops.pad(a(VALUES), b(OFFSETS), 4),
        lambda a, b: ops.unpad(a(PADDED), b(OFFSETS), 5),
        lambda a, b: ops.flatten(a(VALUES), b(OFFSETS), 5),
        lambda a, b: ops.mask_tokens(a(IDS), 3, 99, lengths=b(torch.tensor([1, 2]))),
        lambda a, b: ops.mask_tokens(a(IDS), 3, 99, row_keys=b(torch.tensor([1, 2]))),
        lambda a, b: ops.mask_tokens(a(IDS), 3, 99, special_tokens_mask=b(IDS)),
    ],
)
def test_devices(call):
    meta = lambda tensor: tensor.to("meta")  # noqa: E731
    for places in ((torch.clone, meta), (meta, torch.clone)):
        with pytest.raises(ValueError, match=r"is on (meta|cpu): move one to the other"):
            call(*places)
    call(meta, meta)
    call(torch.clone, torch.clone)


@pytest.mark.parametrize(
    "offsets", [[0, 2, 1, 5], [-1, 2, 2, 5], [0, 2, 2, 6], [0, 2**62, 2, 5], [2**63 - 1, -(2**63), 0, 5]]
)
def test_offsets_stay_within_the_values(offsets):
    offsets = torch.tensor(offsets)
    for call in (
        lambda: ops.pad(VALUES, offsets, 4),
        lambda: ops.unpad(PADDED, offsets, 5),
        lambda: ops.flatten(VALUES, offsets, 5),
    ):
        with pytest.raises(ValueError, match="offsets must be from 0 to 5 and must not decrease"):
            call()


# torch's own, when it first derives forward.
@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_tangents_are_not_lost():
    from torch.autograd import forward_ad

    import quadrat

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(5), torch.ones(5))
        rows = quadrat.Ragged(dual, OFFSETS)
        padded = dual.expand(3, 5)
        for call in (
            lambda: ops.pad(dual, OFFSETS, 4),
            lambda: ops.unpad(padded, OFFSETS, 5),
            lambda: ops.flatten(dual, OFFSETS, 5),
            lambda: quadrat.pad(rows),
            lambda: quadrat.flatten(rows),
            lambda: quadrat.unpad(padded, lengths=[2, 0, 3]),
        ):
            with pytest.raises(NotImplementedError, match="has no forward-mode derivatives"):
                call()
        assert forward_ad.unpack_dual(rows[[2, 0]].values).tangent.tolist() == [1] * 5
        assert forward_ad.unpack_dual(rows[2]).tangent.tolist() == [1] * 3
        joined = quadrat.evaluation.concat_padded([dual[None], torch.zeros(1, 2)])
        assert forward_ad.unpack_dual(joined).tangent.tolist() == [[1] * 5, [0] * 5]
        assert quadrat.deferred.DeferredBatch({"x": dual}).to("cpu")["x"] is dual
