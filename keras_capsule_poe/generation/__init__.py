"""What a trained model draws: samples, chains, and grids of images."""
