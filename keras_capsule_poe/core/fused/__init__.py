"""Fast kernels with the results of the reference forms."""
