"""Any training program on nodes x processes: what is run, from what files, and what is kept."""
