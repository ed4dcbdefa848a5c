"""The ways to find weights for given facts."""
