"""Fit the kernel constants of hardware profiles to measured tables. See tools/fit_kernels.py."""
