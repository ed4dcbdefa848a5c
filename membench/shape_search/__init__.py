"""Which shape of an architecture holds most: the balance between its options, within a budget of parameters."""
