"""From the kind of a batch to a plan, or to the reference: decisions, plan cache, fallback and diagnosis."""
