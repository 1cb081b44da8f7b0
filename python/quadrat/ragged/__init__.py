"""Rows of any length as one array of values, and functions on them."""

from quadrat.ragged.ragged import Ragged, source_of

__all__ = ["Ragged", "source_of"]
