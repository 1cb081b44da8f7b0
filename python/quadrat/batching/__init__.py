"""Which rows go together: lengths, samplers, token budgets and packs."""
