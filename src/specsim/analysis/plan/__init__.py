"""Traffic, a promise and candidate deployments to a fleet."""
