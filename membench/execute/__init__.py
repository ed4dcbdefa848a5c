"""Trials to records, one file for each kind of executor."""
