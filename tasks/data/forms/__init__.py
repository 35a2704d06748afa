"""What the rows of a partition become for the libraries that people train with."""
