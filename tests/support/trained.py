"""The tokenizer of the examples, for tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from corpus import train_tokenizer

__all__ = ["train_tokenizer"]
