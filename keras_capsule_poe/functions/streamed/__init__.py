"""Fused routing over blocks of capsules, with explicit gradients and little memory."""
