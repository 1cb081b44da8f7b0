"""Data that the commands read."""

import csv
import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command import TEXTS
from support.trained import train_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Text files, saved data sets and a saved tokenizer, with the same texts in them."""
    folder = tmp_path_factory.mktemp("data")
    tokenizer = train_tokenizer(TEXTS, max_length=40)
    tokenizer.save_pretrained(folder / "tokenizer")
    ids = tokenizer(TEXTS, truncation=False, verbose=False)["input_ids"]
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"body": text, "n": 1}) for text in TEXTS))
    (folder / "lines.json").write_text((folder / "texts.jsonl").read_text())
    (folder / "texts.json").write_text(json.dumps([{"body": text, "n": 1} for text in TEXTS]))
    for name, delimiter in (("texts.csv", ","), ("texts.tsv", "\t")):
        with open(folder / name, "w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([["n", "text"], *([1, text] for text in TEXTS)])
    pq.write_table(pa.table({"text": TEXTS, "n": ids}), folder / "texts.parquet")
    pq.write_table(pa.table({"input_ids": ids, "mapped": [{"a": 1}] * len(ids)}), folder / "rows.parquet")
    texts = datasets.Dataset.from_dict({"text": TEXTS, "score": [0.5] * len(TEXTS)})
    texts.save_to_disk(folder / "texts")
    rows = datasets.Dataset.from_dict({"input_ids": ids, "label": [0] * len(ids)})
    datasets.DatasetDict({"train": rows, "test": rows.select(range(9))}).save_to_disk(folder / "rows")
    rows.cast_column("input_ids", datasets.LargeList(datasets.Value("int32"))).save_to_disk(folder / "large")
    datasets.Dataset.from_dict({"input_ids": [[1, 2, 3]] * 4}).cast_column(
        "input_ids", datasets.List(datasets.Value("int64"), length=3)
    ).save_to_disk(folder / "fixed")
    return folder
