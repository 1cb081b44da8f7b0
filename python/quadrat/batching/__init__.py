"""Which rows form a batch or a pack: lengths, samplers, token budgets and packing."""
