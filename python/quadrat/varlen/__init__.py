"""What attention kernels without padding ask for: values, offsets, and all that follows from them."""
