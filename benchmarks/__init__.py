"""Benchmarks of pytest-benchmark: a group for each job, and in it a test for each way to do it.

pytest benchmarks --benchmark-only                      measures all
pytest benchmarks --benchmark-only -k "pad and lists"   measures some
pytest benchmarks --benchmark-disable                   compares the results of all ways of small cases, without a clock
"""
