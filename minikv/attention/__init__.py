"""How pages are read."""
