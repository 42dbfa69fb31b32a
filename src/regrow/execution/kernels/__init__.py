"""The native kernels and their torch operators."""
