"""How many facts a model memorises before it no longer does."""
