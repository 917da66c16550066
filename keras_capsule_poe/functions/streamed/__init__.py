"""Routing over blocks of capsules: large products, little memory, a gradient by hand."""
