"""The three questions to ask before speculation is switched on, and what to do."""
