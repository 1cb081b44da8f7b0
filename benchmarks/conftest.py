"""Lets the benchmarks import their neighbours under pytest's importlib mode, as `python benchmarks/report.py` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
