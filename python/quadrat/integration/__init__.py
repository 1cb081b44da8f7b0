"""For code that uses the transformers classes: patches, conversion of collators, and a callback for Trainer."""
