"""What the installed transformers has, and how it behaves."""
