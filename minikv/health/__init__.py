"""Is a server whole, and what does it hold: looked at between two steps."""
