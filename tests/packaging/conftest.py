"""The wheel that tests of packages look at."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def wheel() -> Path:
    """What `make test` built."""
    if (folder := os.environ.get("QUADRAT_WHEEL_DIR")) is None:
        pytest.skip("QUADRAT_WHEEL_DIR names no wheel; `make test` sets it")
    (path,) = Path(folder).glob("quadrat-*.whl")
    return path
