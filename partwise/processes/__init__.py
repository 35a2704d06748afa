"""The craft of processes: they start warm, are kept, measured, and ended with all they started."""
