"""Which rows form a batch or a pack: lengths, samplers, token budgets and packing."""

from quadrat._names import public

__all__, __getattr__, __dir__ = public(__name__, __file__)
