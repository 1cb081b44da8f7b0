"""What a run of the tests is of: versions, the platform, and the code of transformers that quadrat imitates."""

import contextlib
import importlib.metadata
import platform

from hypothesis import settings

from quadrat.installed import imitated
from quadrat.installed.fingerprints import fingerprint
from quadrat.integration.table import rows
from support.matrix import CODE, PACKAGES


def properties() -> dict[str, str]:
    """Name -> value, for the report of a run; those of code begin with `CODE`."""
    rows()  # those of TRL, too
    with contextlib.suppress(ImportError):
        from quadrat.trl import tested  # noqa: F401 - which takes seconds
    code = {name: fingerprint(thing) for name, thing in imitated.CODE.items() if thing is not None}
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "examples": str(settings().max_examples),
        **{name: importlib.metadata.version(name).partition("+")[0] for name in PACKAGES},
        **({"trl": importlib.metadata.version("trl")} if "trl.pad" in imitated.TABLE else {}),
        **{f"{CODE}{name}": digest for name, digest in code.items() if digest is not None},
    }
