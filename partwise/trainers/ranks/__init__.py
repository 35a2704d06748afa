"""Trainers of one model on all ranks of a gang."""
