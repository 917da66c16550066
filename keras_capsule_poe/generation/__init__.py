"""Images that a trained model draws, reconstructs and decodes."""
