"""The two-server sweep: plan it, run it, show what it found."""
