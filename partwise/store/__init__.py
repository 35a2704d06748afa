"""Objects by path, in a directory or a bucket, with the same promises in both; and leases."""
