"""The benchmarks, a module each. `cases` gives, by name, functions that set a case up when it is to be measured."""
