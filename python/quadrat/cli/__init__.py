"""The command line: padding reports, benchmarks against transformers, and the user's data they read."""
