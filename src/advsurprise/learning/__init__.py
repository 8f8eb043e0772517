"""Collecting rollouts and learning from them."""
