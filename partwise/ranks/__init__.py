"""What a rank of a gang works with: its rows, the other ranks, its checkpoints, its context."""
