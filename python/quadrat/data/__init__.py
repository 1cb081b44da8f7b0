"""Datasets that quadrat's collators read from Arrow: rows, batches, packs, streams."""

from quadrat._names import public

__all__, __getattr__, __dir__ = public(__name__, __file__)
