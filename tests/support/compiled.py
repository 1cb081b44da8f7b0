"""What only tests call: see testing.cpp."""

import pytest

emulated = pytest.importorskip("quadrat._testing", reason="needs a build with QUADRAT_EMULATE=ON")
host = emulated.host
