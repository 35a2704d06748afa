"""Searching settings: spaces, samplers, pruners, and the trials of a study."""
