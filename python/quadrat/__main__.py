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


def _run(options: Namespace) -> int:
    """Run a command, and import what it alone needs."""
    if options.command == "run":
        from quadrat.cli.run import run
    elif options.command == "waste":
        from quadrat.cli.waste_report import run
    else:
        from quadrat.cli.inspection import run
    return run(options)


class _Parser(ArgumentParser):
    """Names a command or an option that is spelt nearly like one that does not exist."""

    def error(self, message: str) -> NoReturn:
        known = [*_COMMANDS, *(flag.partition(" ")[0] for command in _COMMANDS.values() for flag in command[-1])]
        words = re.findall(r"(?<=invalid choice: ')[^']+|(?<!\S)--[\w-]+", message)
        near = {
            word: match for word in words for match in difflib.get_close_matches(word, known, 1) if word not in known
        }
        super().error(message + "".join(f"; did you mean {match}?" for match in near.values()))


class _Paragraphs(HelpFormatter):
    """Keeps the paragraphs of a description apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(one, width, indent) for one in text.split("\n\n"))


def _parser() -> ArgumentParser:
    parser = _Parser(
        prog="python -m quadrat" if Path(sys.argv[0]).name == "__main__.py" else "quadrat",
        description="Example: %(prog)s run train.py\n\nRun scripts with quadrat, and show what padding costs on "
        "your data.",
        formatter_class=_Paragraphs,
    )
    parser.add_argument("--version", action="version", version=f"quadrat {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (summary, about, usage, example, options) in _COMMANDS.items():
        texts: dict[str, Any] = {"help": summary, "usage": f"%(prog)s {usage}".rstrip()}
        texts["description"] = f"Example: %(prog)s {example}\n\n{about}"
        made = commands.add_parser(name, formatter_class=_Paragraphs, **texts)
        for option, text in options.items():
            flag, _, value = option.partition(" ")
            read = _VALUES.get(f"{name} {flag}") or _VALUES.get(flag, {})
            if value:
                read = {"metavar": value, "type": str if value == "NAME" else _SIZE} | read
            made.add_argument(flag, help=text, **read or {"action": "store_true"})
    return parser


def _number(kind: type[int] | type[float], least: float, most: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise ArgumentTypeError(f"expected a {'whole ' * (kind is int)}number, got {text!r}") from None
        if not least <= value <= most:
            raise ArgumentTypeError(f"expected a number from {least:,} to {most:,}, got {text}")
        return value

    return read


_SIZE = _number(int, 1, _LARGEST)


def _tokens(text: str) -> Any:
    try:
        return _SIZE(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}; or auto") from None


# How the values of options are read, of one command or of all; of others, N is a size, and NAME any text.
_VALUES: dict[str, dict[str, Any]] = {
    "run --max-tokens": {"type": lambda text: 0 if text == "auto" else _tokens(text)},
    "--report": {"type": os.path.abspath},
    "-m": {"dest": "module", "nargs": REMAINDER},
    "-c": {"dest": "code", "nargs": REMAINDER},
    "run script": {"nargs": REMAINDER},
    "data": {"type": Path},
    "--batch-size": {"default": 32},
    "--seed": {"type": _number(int, 0, _LARGEST), "default": 0},
    "--png": {"type": Path},
}
_DATA = {
    "data": "texts or token ids: a .json, .jsonl or .parquet file, or a folder that datasets' save_to_disk wrote; "
    "texts: a .csv or .tsv file, or a .txt file with one text per line",
    "--tokenizer NAME": "your tokenizer: a folder or a Hub name; without it, waste counts words",
    "--field NAME": "the column to read (default: input_ids if there is one, else text)",
    "--split NAME": "the split of a saved DatasetDict to read, such as train",
    "--batch-size N": "rows in a batch (default: %(default)s)",
    "--max-length N": "truncate rows to N tokens (default: the tokenizer's limit)",
    "--seed N": "seed of the row order (default: 0)",
    "--json": "print JSON instead of tables",
}
# Of each command: a summary, what it does, its usage, an example, and its options.
_COMMANDS: dict[str, tuple[str, str, str, str, dict[str, str]]] = {
    "run": (
        "run a script with quadrat in place of what it replaces, without a change to the script",
        "Run a Python script or module, with quadrat in place of the collators, samplers and functions of "
        "transformers, datasets, tokenizers and TRL that it replaces. A report on standard error at the end says how "
        "many batches were compiled, which were not and why, and how much of them was padding. Works under torchrun "
        "and accelerate: torchrun ... -m quadrat run script.py.",
        "[options] (script.py | -m module) ...",
        "--max-tokens auto train.py",
        {
            "--max-tokens N": "make a Trainer's training batches of rows of similar length, with at most N tokens, "
            "padding included; auto: as many as keep the number of steps",
            "--remove-padding": "have models of transformers compute no padding, whatever calls them",
            "--quiet": "write no report",
            "--report FILE": "also write the report to a file, as JSON",
            "-m": "run a module, as python -m does",
            "-c": "run code, as python -c does",
            "script": "the script and its arguments",
        },
    ),
    "waste": (
        "show how much of your batches is padding, and how to reduce it",
        "Show how long your rows are, how much of each batch is padding in six ways of batching, and the code that "
        "removes it.",
        "[options] data",
        "train.jsonl --tokenizer bert-base-uncased",
        {
            **_DATA,
            "--max-tokens N": "tokens per batch (default: as many as keep the number of batches)",
            "--pad-to-multiple-of N": "pad lengths to the next multiple of N",
            "--png FILE": "also save a picture: a .png, .svg or .pdf file, for example; needs matplotlib "
            "(pip install matplotlib)",
        },
    ),
    "info": (
        "show the versions and the features of this build",
        "Show versions, the SIMD level and CUDA architectures of this build, how it exchanges tensors with torch, and "
        "what falls back to transformers.",
        "",
        "",
        {},
    ),
}


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
