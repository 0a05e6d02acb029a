"""One module per chapter: its questions, its exercises with their judges, its reference answers."""
