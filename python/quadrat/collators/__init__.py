"""Drop-in twins of the transformers data collators: they hold options and decide; kernels do the work."""
