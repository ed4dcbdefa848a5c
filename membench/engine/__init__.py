"""Protocols, and the training engine that they share."""
