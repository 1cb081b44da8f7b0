"""The command line: `run`, `waste` and `info`."""
