"""Benchmarks of quadrat's collators against those of transformers, and the text they run on."""
