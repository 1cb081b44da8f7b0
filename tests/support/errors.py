"""Bad input to a collator and to the reference's: same type of error, the reference's words, and quadrat's line."""

from typing import Any


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
