"""Runs: their documents, ledger and bundles on the artifact store, and the handle to read them."""
