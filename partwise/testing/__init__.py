"""Contracts: the tests that your own serde, exporter, source or store has to pass."""
