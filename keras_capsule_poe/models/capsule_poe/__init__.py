"""Products of expert capsules (Hauser, 2019)."""
