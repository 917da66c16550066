"""Readers of images, one a kind of source."""
