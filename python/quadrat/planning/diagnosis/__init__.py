"""Explains what is wrong with a batch: column, row, lengths, and what to do. Runs only after an error."""
