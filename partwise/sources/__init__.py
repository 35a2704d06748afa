"""One way to open whatever a caller gives as data."""
