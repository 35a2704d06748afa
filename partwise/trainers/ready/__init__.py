"""Trainers of one model for each partition, ready for use."""
