"""From measured runs to constants: choose the runs, fit, say what was learned and what was not."""
