"""Mathematics of capsules on any Keras backend: units, maps, routing, divergence, likelihood."""
