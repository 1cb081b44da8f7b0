"""quadrat beside what it replaces: `python -m benchmarks --list`."""
