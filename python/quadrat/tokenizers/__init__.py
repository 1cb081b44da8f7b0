"""The padding of tokenizers and the conversion of their results, compiled."""

from quadrat._names import public

__all__, __getattr__, __dir__ = public(__name__, __file__)
