"""pytest-benchmark over every workload: `pytest benchmarks/bench_pad.py`."""

from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from cases import BUILDERS, Case
from measure import check_same, quiet


@pytest.fixture(scope="module", params=BUILDERS)
def case(request: pytest.FixtureRequest) -> Case:
    return BUILDERS[request.param]()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("side", ["reference", "quadrat"])
def test_collate(benchmark: BenchmarkFixture, case: Case, side: str) -> None:
    check_same(case.reference(case.features), case.quadrat(case.features))
    benchmark.group = case.name
    benchmark(getattr(case, side), case.features)
