"""Shared parts of the classifier families."""
