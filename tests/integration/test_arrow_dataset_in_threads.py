"""ArrowDataset in several threads. ThreadSanitizer runs this file, so it starts no workers and imports no polars."""

import datasets

import quadrat
from support.threads import together


def test_threads_that_look_at_a_batch_see_the_same_rows():
    dataset = quadrat.ArrowDataset(datasets.Dataset.from_dict({"input_ids": [[1], [2, 3], [], [4]], "labels": [0] * 4}))
    for _ in range(20):
        rows = dataset.__getitems__(range(4))
        seen = together(*[lambda rows=rows: [id(row) for row in rows]] * 4)
        assert seen == [seen[0]] * 4
