"""The point in two minutes: dense and sparse side by side on handwritten digits."""
