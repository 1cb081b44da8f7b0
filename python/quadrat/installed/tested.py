"""The versions that quadrat was tested with, as `make matrix ARGS=--record` writes it; see docs/compatibility.md."""

from __future__ import annotations

import json
from pathlib import Path

_TESTED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

# Package -> oldest and newest version.
RANGES: dict[str, tuple[str, str]] = {name: (oldest, newest) for name, (oldest, newest) in _TESTED["ranges"].items()}
# Code of transformers -> its fingerprints in the tested versions, see quadrat.installed.imitated.
FINGERPRINTS: dict[str, list[str]] = _TESTED["fingerprints"]
