"""Models that compute no padding."""
