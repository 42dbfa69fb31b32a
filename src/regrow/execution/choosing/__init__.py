"""`auto`: what is measured, and which layers compute sparse for it."""
