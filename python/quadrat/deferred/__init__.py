"""Batches that are sent to a device in one buffer, and padded there."""

from quadrat._names import public

__all__, __getattr__, __dir__ = public(__name__, __file__)
