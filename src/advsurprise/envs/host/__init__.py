"""Worlds that run on the host: the host contract, and adapters to it."""
