"""Is a record true: its model is rebuilt from its weights and asked again."""
