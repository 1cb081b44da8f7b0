"""Collators of audio clips and their labels, with the fields of the classes in transformers' example scripts."""

from quadrat._names import public

__all__, __getattr__, __dir__ = public(__name__, __file__)
