"""Tests of sparse execution."""
