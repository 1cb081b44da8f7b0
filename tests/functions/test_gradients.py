"""Functions of tensors have first and second derivatives, and run between the graphs of torch.compile."""

import pytest
import torch
from torch.autograd import forward_ad

import quadrat

OFFSETS = torch.tensor([0, 2, 2, 5])
MASK = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


def floats(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


# Of `[3, 4, 2]` numbers: those of three rows, or of `[5, 2]` or `[7, 2]` that are stored without padding.
DERIVED = {
    "pad": lambda x: quadrat.pad(quadrat.Ragged(x.flatten(0, 1)[:5], OFFSETS), pad_to_multiple_of=4, padding_value=3),
    "pad, left": lambda x: quadrat.pad(quadrat.Ragged(x.flatten(0, 1)[:5], OFFSETS), padding_side="left"),
    "pad, values outside the rows": lambda x: quadrat.pad(quadrat.Ragged(x.flatten(0, 1)[:7], OFFSETS + 1)),
    "unpad": lambda x: quadrat.unpad(x, lengths=torch.tensor([2, 0, 3])).values,
    "unpad, left": lambda x: quadrat.unpad(x, lengths=[2, 0, 3], padding_side="left").values,
    "unpad by a mask": lambda x: quadrat.unpad(x, mask=MASK).values,
    "align": lambda x: quadrat.align(OFFSETS, x.flatten(0, 1)[:5], pad_to_multiple_of=4).values[0],
}


@pytest.mark.parametrize("name", DERIVED)
def test_first_and_second_derivatives(name):
    x, function = floats(3, 4, 2), DERIVED[name]
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(lambda x: function(x).square(), x)
    with torch.no_grad():
        assert not function(x).requires_grad


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # of torch, while it traces
def test_functions_run_between_the_graphs_of_a_compiled_model():
    def model(values, offsets, lengths, mask):
        padded = quadrat.pad(quadrat.Ragged(values.sin(), offsets), max_length=4, padding_value=1)
        return quadrat.unpad(padded * 2, lengths=lengths, total=5).values, quadrat.unpad(padded, mask=mask).values

    values, lengths = floats(5, 2), OFFSETS.diff()
    arguments = values, OFFSETS, lengths, torch.arange(4) < lengths[:, None]
    doubled, kept = torch.compile(model, backend="aot_eager")(*arguments)
    torch.testing.assert_close(doubled, values.sin() * 2)
    torch.testing.assert_close(kept, values.sin())
    (gradient,) = torch.autograd.grad(doubled.sum() + kept.sum(), values)
    torch.testing.assert_close(gradient, values.cos() * 3)


# torch's own, when it first derives forward.
@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_tangents_are_not_lost():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(5), torch.ones(5))
        rows = quadrat.Ragged(dual, OFFSETS)
        for call in (
            lambda: quadrat.pad(rows),
            lambda: quadrat.flatten(rows),
            lambda: quadrat.unpad(dual.expand(3, 5), lengths=[2, 0, 3]),
        ):
            with pytest.raises(NotImplementedError, match="has no forward-mode derivatives"):
                call()
        assert forward_ad.unpack_dual(rows[[2, 0]].values).tangent.tolist() == [1] * 5
        assert forward_ad.unpack_dual(rows[2]).tangent.tolist() == [1] * 3
        joined = quadrat.evaluation.concat_padded([dual[None], torch.zeros(1, 2)])
        assert forward_ad.unpack_dual(joined).tangent.tolist() == [[1] * 5, [0] * 5]
        assert quadrat.deferred.DeferredBatch({"x": dual}).to("cpu")["x"] is dual
