"""`quadrat`, or `python -m quadrat`: the command line."""

import difflib
import io
import os
import re
import signal
import sys
from argparse import REMAINDER, ArgumentParser, ArgumentTypeError, HelpFormatter, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from quadrat._core import __version__
from quadrat.cli.command import CommandError, HarmlessStream, complain, let_go_of, one_line

# More than any data has; products with it still fit 64 bits.
_LARGEST = 1_000_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    called = "quadrat"
    try:
        try:
            parser = _parser()
            options = parser.parse_args(arguments)
            called = f"quadrat {options.command or ''}".rstrip()
            if sys.stdout is None:
                raise CommandError("standard output is closed")
            if options.command is None:
                parser.print_help()
                return 0
            return _run(options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except (CommandError, ModuleNotFoundError) as error:
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


def _run(options: Namespace) -> int:
    """Run a command, and import what it alone needs."""
    if options.command == "run":
        from quadrat.cli.run import run
    elif options.command == "waste":
        from quadrat.cli.waste import run
    else:
        from quadrat.cli.inspection import run
    return run(options)


class _Parser(ArgumentParser):
    """Names a command or an option that is spelt nearly like one that does not exist."""

    known: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        words = re.findall(r"(?<=invalid choice: ')[^']+|(?<!\S)--[\w-]+", message)
        near = {
            word: match
            for word in words
            for match in difflib.get_close_matches(word, self.known, 1)
            if word not in self.known
        }
        super().error(message + "".join(f"; did you mean {match}?" for match in near.values()))


class _Paragraphs(HelpFormatter):
    """Keeps the paragraphs of a description apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(paragraph, width, indent) for paragraph in text.split("\n\n"))


def _parser() -> ArgumentParser:
    parser = _Parser(
        prog="python -m quadrat" if Path(sys.argv[0]).name == "__main__.py" else "quadrat",
        description="Example: %(prog)s run train.py\n\nRun scripts with quadrat, and show what padding costs on "
        "your data.",
        formatter_class=_Paragraphs,
    )
    parser.add_argument("--version", action="version", version=f"quadrat {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def add(name: str, usage: str, example: str, summary: str, about: str) -> Callable[..., Any]:
        description = f"Example: %(prog)s {example}\n\n{about}"
        texts: dict[str, Any] = {"help": summary, "description": description, "usage": f"%(prog)s {usage}".rstrip()}
        return commands.add_parser(name, formatter_class=_Paragraphs, **texts).add_argument

    option = add(
        "run",
        "[options] (script.py | -m module) ...",
        "--max-tokens auto train.py",
        "run a script with quadrat in place of what it replaces, without a change to the script",
        "Run a Python script or module, with quadrat in place of the collators, samplers and functions of "
        "transformers, datasets, tokenizers and TRL that it replaces. A report on standard error at the end says how "
        "many batches were compiled, which were not and why, and how much of them was padding. Works under torchrun "
        "and accelerate: torchrun ... -m quadrat run script.py.",
    )
    option(
        "--max-tokens",
        metavar="N",
        type=_size_or_auto,
        help="make a Trainer's training batches of rows of similar length, with at most N tokens, padding included; "
        "auto: as many as keep the number of steps",
    )
    option(
        "--remove-padding",
        action="store_true",
        help="have models of transformers compute no padding, whatever calls them",
    )
    option("--quiet", action="store_true", help="write no report")
    option("--report", metavar="FILE", type=os.path.abspath, help="also write the report to a file, as JSON")
    option("-m", dest="module", nargs=REMAINDER, help="run a module, as python -m does")
    option("-c", dest="code", nargs=REMAINDER, help="run code, as python -c does")
    option("script", nargs=REMAINDER, help="the script and its arguments")

    option = add(
        "waste",
        "[options] data",
        "train.jsonl --tokenizer bert-base-uncased",
        "show how much of your batches is padding, and how to reduce it",
        "Show how long your rows are, how much of each batch is padding, and what removes it.",
    )
    option(
        "data",
        type=Path,
        help="texts or token ids: a .json, .jsonl or .parquet file, or a folder that datasets' save_to_disk wrote; "
        "texts: a .csv or .tsv file, or a .txt file with one text per line",
    )
    option("--tokenizer", metavar="NAME", help="your tokenizer: a folder or a Hub name; without it, waste counts words")
    option("--field", metavar="NAME", help="the column to read (default: input_ids if there is one, else text)")
    option("--split", metavar="NAME", help="the split of a saved DatasetDict to read, such as train")
    size: dict[str, Any] = {"metavar": "N", "type": _size}
    option("--batch-size", **size, default=32, help="rows in a batch (default: %(default)s)")
    option("--max-length", **size, help="truncate rows to N tokens (default: the tokenizer's limit)")
    option("--max-tokens", **size, help="tokens per batch (default: as many as keep the number of batches)")
    option("--json", action="store_true", help="print JSON instead of text")

    add(
        "info",
        "",
        "",
        "show the versions and the features of this build",
        "Show versions, the SIMD level and CUDA architectures of this build, how it exchanges tensors with torch, and "
        "what falls back to transformers.",
    )
    options = (name for command in commands.choices.values() for name in command._option_string_actions)
    _Parser.known = (*commands.choices, *options)
    return parser


def _size(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a whole number, got {text!r}") from None
    if not 1 <= value <= _LARGEST:
        raise ArgumentTypeError(f"expected a number from 1 to {_LARGEST:,}, got {text}")
    return value


def _size_or_auto(text: str) -> int:
    """0 stands for auto."""
    try:
        return 0 if text == "auto" else _size(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}; or auto") from None


def _prepare_streams() -> None:
    """Make writing to the user's streams safe: no character fails, and no control character reaches the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may have characters that an encoding of the user's has not
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
