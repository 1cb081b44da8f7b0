"""Drop-in, bit-identical, compiled replacements for the transformers data collators.

Importing quadrat imports neither torch nor transformers: names load on first use.
"""

from quadrat._core import __version__ as __version__
from quadrat._names import public

__all__, __getattr__, __dir__ = public(__name__, __file__)
