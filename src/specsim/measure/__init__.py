"""Readers of benchmark files, metrics and logs, and the two-server sweep that writes them."""
