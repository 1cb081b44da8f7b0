"""`quadrat`, or `python -m quadrat`: the command line."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any, TextIO, cast

from quadrat._core import __version__
from quadrat.cli.command import CommandError, HarmlessStream, complain, harmless, let_go_of, one_line
from quadrat.config import show_config

# More than any data has; products with it still fit 64 bits.
_LARGEST = 1_000_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    called = "quadrat"
    try:
        try:
            parser = _parser()
            options = vars(parser.parse_args(arguments))
            command = options.pop("command")
            called = f"quadrat {command or ''}".rstrip()
            if sys.stdout is None:
                raise CommandError("standard output is closed")
            if command is None:
                parser.print_help()
                return 0
            return _run(command, options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except CommandError as error:
        complain(f"{called}: {error}")
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        let_go_of(sys.stdout)
        return 1
    except OSError as error:  # a full disk, for example
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
    if command == "run":
        from quadrat.cli import run

        module, code, script = (options.pop(name) for name in ("module", "code", "script"))
        given = ["-m", *module] if module is not None else ["-c", *code] if code is not None else script
        return run.launch(given, run.Options(**options))
    if command == "waste":
        from quadrat.cli import waste_report

        return waste_report.run(waste_report.Options(**options))
    from quadrat.cli import comparison

    return comparison.run(comparison.Options(**options))


def _parser() -> argparse.ArgumentParser:
    from quadrat.cli.comparison import PAIRS

    parser = argparse.ArgumentParser(
        prog="python -m quadrat" if Path(sys.argv[0]).name == "__main__.py" else "quadrat",
        description="Run scripts with quadrat, show what padding costs on your data, and how fast quadrat's collators "
        "are on it.",
    )
    parser.add_argument("--version", action="version", version=f"quadrat {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands.add_parser(
        "info",
        help="show the versions and the features of this build",
        description="Show versions, the SIMD level and CUDA architectures of this build, and how it exchanges tensors "
        "with torch.",
    )

    run = commands.add_parser(
        "run",
        usage="%(prog)s [options] (script.py | -m module) ...",
        help="run a script with quadrat in place of what it replaces, without a change to the script",
        description="Run a Python script or module, with quadrat in place of the collators, samplers and functions of "
        "transformers, datasets, tokenizers and TRL that it replaces. A report on standard error at the end says how "
        "many batches were compiled, which were not and why, and how much of them was padding. Works under torchrun "
        "and accelerate: torchrun ... -m quadrat run script.py.",
    )
    run.add_argument(
        "--max-tokens",
        type=_budget,
        metavar="N",
        help="make a Trainer's training batches of rows of similar length, with at most N tokens, padding included; "
        "auto: as many as a usual batch has",
    )
    run.add_argument("--group-by-length", action="store_true", help="have a Trainer group its rows by length")
    run.add_argument(
        "--shapes",
        type=_positive,
        metavar="K",
        help="with --max-tokens: fill training batches to K shapes, so that torch.compile compiles K times",
    )
    run.add_argument("--quiet", action="store_true", help="write no report")
    run.add_argument("--report", type=os.path.abspath, metavar="FILE", help="also write the report to a file, as JSON")
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as python -m does")
    run.add_argument("-c", dest="code", nargs=argparse.REMAINDER, help="run code, as python -c does")
    run.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")

    waste = commands.add_parser(
        "waste",
        help="show how much of your batches is padding, and how to reduce it",
        description="Show how long your rows are, how much of each batch is padding in six ways of batching, and the "
        "code for the best one.",
    )
    _add_data(waste)
    waste.add_argument(
        "--max-tokens",
        type=_positive,
        metavar="N",
        help="the token budget: the most tokens in a batch (default: batch size times mean length)",
    )
    waste.add_argument(
        "--pad-to-multiple-of", type=_positive, metavar="N", help="pad lengths up to the next multiple of N"
    )
    waste.add_argument(
        "--png",
        type=Path,
        metavar="FILE",
        help="also save a picture of the lengths and of the padding; the extension sets the format: .png, .svg, .pdf",
    )

    bench = commands.add_parser(
        "bench",
        help="compare quadrat's collators with those of transformers on your data: results and times",
        description="Check on your data that quadrat's collators make the same batches as those of transformers, and "
        "time both. The exit status is 1 if a batch differs.",
    )
    _add_data(bench)
    bench.add_argument(
        "--collators", nargs="+", choices=PAIRS, metavar="NAME", help=f"time only these: {', '.join(PAIRS)}"
    )
    bench.add_argument(
        "--seconds",
        type=_seconds,
        default=2.0,
        metavar="S",
        help="how long to time each collator (default: %(default)s)",
    )
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data",
        type=Path,
        help="texts or token ids: a .json, .jsonl or .parquet file, or a folder that datasets' save_to_disk wrote; "
        "texts: a .csv or .tsv file, or a .txt file with one text per line",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="your tokenizer: a folder, or a name on the Hugging Face Hub (without it, waste counts words)",
    )
    parser.add_argument(
        "--field", metavar="NAME", help="the field or column to read (default: input_ids if there is one, else text)"
    )
    parser.add_argument("--split", metavar="NAME", help="the split of a saved DatasetDict to read, such as train")
    parser.add_argument(
        "--batch-size", type=_positive, default=32, metavar="N", help="rows in a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--max-length", type=_positive, metavar="N", help="truncate rows to N tokens (default: the tokenizer's limit)"
    )
    parser.add_argument(
        "--seed", type=_not_negative, default=0, metavar="N", help="seed of the order of rows (default: %(default)s)"
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


def _budget(text: str) -> int:
    return 0 if text == "auto" else _positive(text)


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
    """Make writing to the user's streams safe: no character fails, and no control character reaches the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding of the user's may not have the blocks of bars
    if sys.stderr is None:  # it was closed, but libraries write to it
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    # For options, which argparse reports, and for the logs and warnings of libraries. Their bars would be shown raw.
    sys.stderr = cast(TextIO, HarmlessStream(sys.stderr))
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def script() -> int:
    """`main`, in a process of its own: the `quadrat` command."""
    if sys.argv[1:2] != ["run"]:  # whose streams and environment are the script's
        _prepare_streams()
    return main()


if __name__ == "__main__":
    raise SystemExit(script())
