"""Calls of flows as values: what each takes, how it is compared, and how it is written down."""
