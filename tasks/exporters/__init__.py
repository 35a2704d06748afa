"""Exporters: a trained model as a file that runs without its training library."""
