"""Batches that travel packed and are made on the device."""
