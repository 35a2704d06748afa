"""What people bring from other systems: a table of their names, and what finds them in files.

The table stands in the pages of this folder, which people read as well: one truth for both.
Nothing of the other systems is imported.
"""
