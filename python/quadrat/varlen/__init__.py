"""What attention without padding asks for: metadata, masks and slices, worked out from the lengths of rows."""
