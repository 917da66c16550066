"""Atomic file writing, records, and pictures of arrays."""
