"""The command line `capspoe`."""
