"""Drop-in replacements of the transformers data collators: they hold options and decide; kernels do the work."""

from quadrat.support.extras import needs

with needs("quadrat.collators", "transformers"):
    import transformers  # noqa: F401 - imported here for all of them
