"""Who runs next, and who is let in."""
