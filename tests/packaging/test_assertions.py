"""`python -O` changes nothing: asserts have no effects, and none guards what users give."""

import ast
from pathlib import Path

from support.isolated import python

SOURCES = Path(__file__).parents[2] / "python" / "quadrat"
PURE = {"isinstance", "len", "type", "callable", "all", "any"}

CODE = """
import numpy, torch
import quadrat
from quadrat import align

print(__debug__)
padded = torch.tensor([[5, 6, 0], [0, 7, 0]])
print(quadrat.unpad(padded, mask=padded != 0).to_lists())
print(quadrat.unpad(padded.numpy(), lengths=[2, 2]).to_lists())
print(quadrat.flatten([[1, 2, 3], [7]], align_to=2).values.tolist())
print(quadrat.pad([[1, 2], [3]]).tolist())
print(align(numpy.array([0, 1, 3]), numpy.array([1, 2, 3]), pad_to_multiple_of=2).values[0].tolist())
print(quadrat.Ragged.from_rows([[1], [2, 3]])[[1, 0]].to_lists())
print(quadrat.evaluation.concat_padded([padded, padded[:, :2]]).shape[1])
for wrong in (
    lambda: align(numpy.array([0, 1, 2**61]), pad_to_multiple_of=2),
    lambda: align(numpy.array([0, 1, 3]), numpy.array([1, 2, 3]), pad_to_multiple_of=2**62),
    lambda: align(numpy.array([0, 3]), numpy.arange(3), pad_to_multiple_of=2, position_ids_start=2**63 - 2),
    lambda: quadrat.flatten([[1, 2], [3]], align_to=2**62),
    lambda: quadrat.flatten([[1, 2], [3]], align_to=2**63),
    lambda: quadrat.flatten([[1, 2], [3]], align_to=4, position_ids_start=2**63 - 2),
):
    try:
        print(wrong())
    except OverflowError:
        print("OverflowError")
"""


def test_the_same_without_asserts() -> None:
    outputs = []
    for flags in ([], ["-O"]):
        outputs.append(python(*flags, "-c", CODE).splitlines())
    (first, *expected), (other, *got) = outputs
    assert (first, other) == ("True", "False")
    assert got == expected
    assert got.count("OverflowError") == 6


def test_asserts_have_no_effects() -> None:
    places = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                for inner in ast.walk(node):
                    name = inner.func.id if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) else None
                    if isinstance(inner, (ast.NamedExpr, ast.Await)) or (
                        isinstance(inner, ast.Call) and name not in PURE
                    ):
                        places.append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    assert not places
