"""Any training script on nodes x processes, and the machines on which it runs."""
