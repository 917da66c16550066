"""Atomic file writing, and pictures of arrays."""
