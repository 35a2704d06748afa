"""Runs: their documents, ledger and bundles on the artifact store, and the handle to read them."""

from partwise.tasks.runs.run import Run

__all__ = ["Run"]
