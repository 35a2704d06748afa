"""A project of one's own: the files that it begins with, and who writes them."""
