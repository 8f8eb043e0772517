"""Figures of the documentation, each a module that makes its numbers and draws them."""
