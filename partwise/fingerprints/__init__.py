"""Whether a function is still what it was, decided in another process on another day."""
