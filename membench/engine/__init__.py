"""Facts and a model to weights: the training engine, and the protocols that use it."""
