"""Answers over HTTP by many models, one of which each key has; and the same without HTTP."""
