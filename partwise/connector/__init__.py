"""What a user's function gets: its rows in the form it likes, and its context."""
