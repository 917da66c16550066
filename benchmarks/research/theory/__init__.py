"""Results that only tests and documentation use."""
