"""pytest-benchmark over every way to the usual batch: `pytest benchmarks/bench_peers.py`."""

from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from peer_routes import COLUMNS, JOBS
from peers import USUAL, call, difference, prepared

WAYS = [(job, route.name, kind) for job, routes in JOBS.items() for route in routes() for kind in route.inputs]


@pytest.fixture(autouse=True)
def _prepared() -> Iterator[None]:
    with prepared():
        yield


@pytest.mark.parametrize(("job", "way", "kind"), WAYS, ids=[", ".join(way) for way in WAYS])
def test_way(benchmark: BenchmarkFixture, job: str, way: str, kind: str) -> None:
    names = COLUMNS if job == "padding" else COLUMNS[:1]
    routes = {route.name: route for route in JOBS[job]()}
    make = call(routes[way], kind, *USUAL, names)
    expected = call(routes["transformers"], "lists", *USUAL, names)(None)
    assert not difference(expected, make(None))
    benchmark.group = f"{job}, {kind}"
    benchmark(make, None)
