"""The sections of docs/validation.md, its plots, and the gate. See tools/make_validation.py."""
