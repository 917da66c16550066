"""Export of trained models for programs without this package."""
