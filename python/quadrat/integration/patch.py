"""`patch`: patches all the libraries that are installed."""

import importlib.util
import logging

from quadrat.integration.switch import Patch, Switch
from quadrat.support.extras import needs


def patch(
    *,
    transformers: bool | None = None,
    datasets: bool | None = None,
    tokenizers: bool | None = None,
    trl: bool | None = None,
) -> Patch:
    """Replace what quadrat has of transformers, datasets, tokenizers and TRL, in this process.

    `patch_transformers`, `quadrat.data.patch_datasets`, `quadrat.tokenizers.patch_tokenizers` and
    `quadrat.trl.patch_trl` describe what they replace; each can be called alone. Names that were imported earlier do
    not change: call this before `from transformers import ...`. The libraries are imported, which takes seconds for
    TRL; `trl=False` leaves it out.

    Args:
        transformers, datasets, tokenizers, trl: whether to patch this library. None patches it if it is installed.

    Returns:
        A context manager, which undoes the patch at the end of its block; `.undo()` undoes it at any time. With
        several patches of a library, undoing the last one restores it.

    Raises:
        ModuleNotFoundError: when a library that is to be patched (True) is not installed.

    Examples:
        >>> import quadrat, transformers
        >>> with quadrat.patch(trl=False):
        ...     transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
        True
        >>> transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
        False
    """
    switches: list[Switch] = []
    if _is_wanted("transformers", transformers):
        from quadrat.integration.patch_transformers import TRANSFORMERS

        switches.append(TRANSFORMERS)
    if _is_wanted("tokenizers", tokenizers, "transformers"):
        from quadrat.integration.patch_transformers import TOKENIZERS

        switches.append(TOKENIZERS)
    if _is_wanted("datasets", datasets):
        from quadrat.integration.patch_datasets import DATASETS

        switches.append(DATASETS)
    if _is_wanted("trl", trl):
        try:
            importlib.import_module("quadrat.trl")
            from quadrat.integration.patch_trl import TRL

            switches.append(TRL)
        except Exception as error:
            if trl:
                raise
            # Installed, and broken: nobody can use it.
            logging.getLogger("quadrat").warning("TRL is not patched, it does not import: %s", error)
    return Patch("patch", *switches)


def _is_wanted(library: str, asked: bool | None, package: str | None = None) -> bool:
    """True if a library is to be patched. Raises ModuleNotFoundError if its package was asked for and is missing."""
    package = package or library
    is_wanted = (asked is None or asked) and importlib.util.find_spec(package) is not None
    if asked and not is_wanted:
        with needs(f"quadrat.patch({library}=True)", package):
            raise ModuleNotFoundError(name=package)
    return is_wanted
