"""What an exported model is: a file that runs without its training library, proved against it."""
