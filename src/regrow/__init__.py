"""Neural networks that are sparse from the first training step to the last."""
