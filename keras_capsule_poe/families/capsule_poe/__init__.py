"""Products of expert capsules."""
