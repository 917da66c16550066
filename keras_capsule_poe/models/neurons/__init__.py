"""Products of expert neurons."""
