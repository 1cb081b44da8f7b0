"""`python -m quadrat`: the command line."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any, TextIO, cast

from quadrat.cli.command import CommandError, HarmlessStream, complain, harmless, let_go_of, one_line
from quadrat.config import show_config

# Far beyond any data; what is multiplied with it stays within 64 bits.
_LARGEST = 1_000_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    called = "quadrat"
    try:
        try:
            options = vars(_parser().parse_args(arguments))
            command = options.pop("command")
            called = f"quadrat {command}"
            if sys.stdout is None:
                raise CommandError("standard output is closed")
            return _run(command, options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except CommandError as error:
        complain(f"{called}: {error}")
    except BrokenPipeError:  # `head` has seen enough
        let_go_of(sys.stdout)
        return 1
    except OSError as error:  # of a disk that is full
        complain(f"{called}: {error}")
        let_go_of(sys.stdout)
    except KeyboardInterrupt:
        complain(f"{called}: interrupted")
        return 128 + signal.SIGINT
    except MemoryError:
        complain(f"{called}: out of memory")
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        complain(f"{called}: {type(error).__name__}: {one_line(error)} (python -X dev shows where)")
    return 2


def _run(command: str, options: dict[str, Any]) -> int:
    if command == "info":
        config = show_config()
        width = max(map(len, config))
        for name, value in config.items():
            print(harmless(f"{name:{width}}  {value}"))
        return 0
    if command == "waste":
        from quadrat.cli import waste_report

        return waste_report.run(waste_report.Options(**options))
    from quadrat.cli import comparison

    return comparison.run(comparison.Options(**options))


def _parser() -> argparse.ArgumentParser:
    from quadrat.cli.comparison import PAIRS

    parser = argparse.ArgumentParser(prog="python -m quadrat", description="Compiled data collators.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "info", help="print versions, the SIMD level, CUDA architectures and what was found at run time"
    )

    waste = commands.add_parser(
        "waste",
        help="show what padding costs on your data, and which way of batching to choose",
        description="Show the lengths of your rows, what padding costs in each way of batching, and which to choose.",
    )
    _add_data(waste)
    waste.add_argument(
        "--max-tokens",
        type=_positive,
        metavar="N",
        help="tokens in a token-budget batch (default: batch size x mean length)",
    )
    waste.add_argument(
        "--pad-to-multiple-of", type=_positive, metavar="N", help="round padded lengths up to a multiple of N"
    )
    waste.add_argument("--png", type=Path, metavar="FILE", help="also draw lengths and shares of padding")

    bench = commands.add_parser(
        "bench",
        help="compare the batches and the times of quadrat's collators and transformers' on your data",
        description="Check that quadrat's and transformers' collators give the same batches on your data, and time "
        "both. The exit status is 1 if a batch differs.",
    )
    _add_data(bench)
    bench.add_argument(
        "--collators", nargs="+", choices=PAIRS, metavar="NAME", help=f"run only these: {', '.join(PAIRS)}"
    )
    bench.add_argument(
        "--seconds",
        type=_seconds,
        default=2.0,
        metavar="S",
        help="time for each collator (default: %(default)s)",
    )
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data",
        type=Path,
        help="a .txt file with one text per line, a .jsonl file, or a folder written by save_to_disk with a column of "
        "text or of token ids",
    )
    parser.add_argument("--tokenizer", metavar="NAME", help="folder or name (default: train a WordPiece tokenizer)")
    parser.add_argument("--field", help="field or column to read (default: text, or input_ids if there is one)")
    parser.add_argument("--split", help="split of a DatasetDict")
    parser.add_argument(
        "--batch-size", type=_positive, default=32, metavar="N", help="rows per batch (default: %(default)s)"
    )
    parser.add_argument(
        "--max-length", type=_positive, metavar="N", help="truncate texts to N tokens (default: the tokenizer's limit)"
    )
    parser.add_argument(
        "--seed", type=_not_negative, default=0, help="seed for the order of rows (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def _positive(text: str) -> int:
    if not 1 <= _whole(text) <= _LARGEST:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {_LARGEST:,}, got {text}")
    return int(text)


def _not_negative(text: str) -> int:
    if _whole(text) < 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text}")
    return value


def _prepare_streams() -> None:
    """Whatever the user's streams are, writing to them neither fails for a character nor steers the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding of the user's may not have the blocks of bars
    if sys.stderr is None:  # it was closed; libraries write to it unasked
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    # For options, which argparse reports, and for the logs and warnings of libraries. Their bars would be shown raw.
    sys.stderr = cast(TextIO, HarmlessStream(sys.stderr))
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


if __name__ == "__main__":
    _prepare_streams()
    raise SystemExit(main())
