"""Records to columns, curves, laws and figures."""
