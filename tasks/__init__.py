"""The work: steps of the pipeline (files) and what they are made of (folders)."""
