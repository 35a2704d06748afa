"""Partition keys: their classes, normal forms, hashes, bytes and names."""
