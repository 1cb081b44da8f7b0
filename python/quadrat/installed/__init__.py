"""The classes of the installed transformers, and how they behave."""
