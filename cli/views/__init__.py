"""What the commands show while and after they work."""
