"""Datasets that quadrat's collators read from Arrow: rows, batches, packs, streams, and Ray Data."""
