"""Inputs of attention without padding: metadata, masks and slices, computed from the lengths of rows."""
