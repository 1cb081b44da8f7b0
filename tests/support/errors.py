"""Bad input to a collator and to the reference's: same type of error, the reference's words, and quadrat's line."""

from collections.abc import Callable
from typing import Any

from support.compare import outcome


def check(reference: Callable[[Any], Any], collator: Callable[[Any], Any], features: Any, said: list[str]) -> None:
    """As `check_error`; where the reference makes a batch, the collator must make one."""
    kind, expected = outcome(reference, features)
    if kind == "returned":
        assert outcome(collator, features)[0] == "returned"
        return
    check_error(expected, outcome(collator, features), said)


def check_error(expected: Exception | None, got: tuple[str, Any], said: list[str]) -> str:
    """Returns quadrat's line. expected: the reference's error, None where it makes no such batches. got: an outcome."""
    kind, error = got
    assert kind == "raised", f"expected {expected!r}"
    message = str(error.args[0])
    if expected is not None:
        assert type(error) is type(expected), f"expected {expected!r}, got {error!r}"
        assert str(expected.args[0] if expected.args else expected) in message
    assert message.count("quadrat: ") == 1, message
    line = message.partition("quadrat: ")[2]
    missing = [words for words in said if words not in line]
    assert not missing, f"{missing} not in: {line}"
    assert error.__cause__ is not None
    return line
