"""Seats for the learner's parts: each turns a function of theirs into the part that an engine or a cluster takes."""
