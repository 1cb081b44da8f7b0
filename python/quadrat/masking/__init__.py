"""Masking of tokens: which are masked, replaced and kept, and their labels."""
