"""What a run of the tests is of: versions, the platform, and the code of transformers that quadrat imitates."""

import importlib.metadata
import platform

from hypothesis import settings

from quadrat.installed import imitated
from quadrat.installed.imitated import fingerprint
from support.matrix import CODE, PACKAGES


def properties() -> dict[str, str]:
    """Name -> value, for the report of a run; those of code begin with `CODE`."""
    code = {name: fingerprint(thing) for name, thing in imitated.CODE.items() if thing is not None}
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "examples": str(settings().max_examples),
        **{name: importlib.metadata.version(name).partition("+")[0] for name in PACKAGES},
        **{f"{CODE}{name}": found for name, found in code.items() if found is not None},
    }
