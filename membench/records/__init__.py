"""What a trial leaves: one JSON file, and its weights beside it."""
