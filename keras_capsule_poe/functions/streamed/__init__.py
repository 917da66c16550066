"""Sums over pairs of capsules as large products, a block at a time."""
