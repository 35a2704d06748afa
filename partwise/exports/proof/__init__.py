"""Validation: the proof that an export takes and gives what its model does."""
