"""Choosing for each partition by itself: among trainers, and among settings."""
