"""Modules that compute on the kernels, and those between them."""
