"""What families of classifiers share: examples, windows, rates, and their two stages."""
