"""Figures and tables of the documentation, and the experiments behind them."""
