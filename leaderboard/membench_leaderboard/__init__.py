"""Records to what people look at: a frame, scores, tables and plots."""
