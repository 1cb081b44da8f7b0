"""Makes falling back an error, where the result would hide it: it is identical, and slow."""

import contextlib
import logging
from collections.abc import Iterator


class FellBackError(AssertionError):
    """A batch was made by the reference."""


class _Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if "fell back" in (said := record.getMessage()):
            raise FellBackError(said)


@contextlib.contextmanager
def nothing_falls_back() -> Iterator[None]:
    """Raises FellBackError where a collator falls back. Collators say so once: use new ones."""
    logger, handler = logging.getLogger("quadrat"), _Raising()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
