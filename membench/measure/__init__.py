"""A model to numbers: what it knows, how large it is, where that was found."""
