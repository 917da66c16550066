"""Capsule networks of Sabour, Frosst and Hinton (2017)."""
