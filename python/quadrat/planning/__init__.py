"""Chooses a plan for each kind of batch, or the reference: decisions, plan cache, fallback and diagnosis."""
