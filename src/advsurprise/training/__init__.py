"""Training loops, and runs on disk."""
