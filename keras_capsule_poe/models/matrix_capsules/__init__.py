"""Matrix capsules with EM routing (Hinton et al., 2018)."""
