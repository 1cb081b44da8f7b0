"""Batches that are sent to a device in one buffer, and padded there."""
