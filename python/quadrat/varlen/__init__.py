"""Attention without padding: metadata, masks and slices from the lengths of rows; tensors without their padding."""

from quadrat._names import public

__all__, __getattr__, __dir__ = public(__name__, __file__)
