"""torch.ops.quadrat: shapes, dtypes and devices are checked, also where the compiler only asks for shapes."""

import pytest
import torch

pytest.importorskip("quadrat.ops.library", reason="needs torch 2.4", exc_type=ImportError)
ops = torch.ops.quadrat
VALUES, OFFSETS, PADDED = torch.arange(5), torch.tensor([0, 2, 2, 5]), torch.arange(12).reshape(3, 4)
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
        joined = quadrat.concat_padded([dual[None], torch.zeros(1, 2)])
        assert forward_ad.unpack_dual(joined).tangent.tolist() == [[1] * 5, [0] * 5]
        assert quadrat.DeferredBatch({"x": dual}).to("cpu")["x"] is dual
