"""Evaluation of frozen policies, statistics and figures."""
