"""A child process: runs the user's function, and puts back what that changed."""
