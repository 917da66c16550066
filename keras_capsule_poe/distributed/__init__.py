"""Training on several devices and several machines."""
