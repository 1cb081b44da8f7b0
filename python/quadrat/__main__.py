"""`python -m quadrat`: the command line."""

from __future__ import annotations

import argparse


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m quadrat", description="Compiled data collators.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="print version, SIMD level, CUDA architectures and what was found at run time")
    parser.parse_args(arguments)
    from quadrat.config import show_config

    config = show_config()
    width = max(map(len, config))
    for name, value in config.items():
        print(f"{name:{width}}  {value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
