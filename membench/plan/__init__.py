"""Names and option texts to trials."""
