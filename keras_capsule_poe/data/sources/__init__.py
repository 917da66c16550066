"""Readers of images, one module per kind of source."""
