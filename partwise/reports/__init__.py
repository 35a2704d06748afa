"""What a person looks at after a run: one file with pictures, which opens anywhere."""
