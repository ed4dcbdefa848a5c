"""The mathematics under bounds and constructions: floors, frames, readouts, ranks, and certificates of weights."""
