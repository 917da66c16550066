"""Command line `capspoe`."""
