"""Tables whose log says which files are theirs: Delta, Iceberg, and the refusal of Hudi."""
