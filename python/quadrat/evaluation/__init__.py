"""Containers of evaluation loops, and metrics without padding."""
