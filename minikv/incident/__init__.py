"""History: the defects as subclasses of the right nodes, and the replay of what they did."""
