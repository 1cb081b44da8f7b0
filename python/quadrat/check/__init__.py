"""`check_packing`: whether a model keeps the sequences of a packed batch apart."""
