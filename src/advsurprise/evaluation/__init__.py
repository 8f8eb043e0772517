"""Frozen policies at play, statistics and figures."""
