"""Batches straight from Arrow: `ArrowDataset` over a `datasets.Dataset`, and Ray Data."""
