"""Files written whole or not at all, and pictures of arrays."""
