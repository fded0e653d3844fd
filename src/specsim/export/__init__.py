"""Results as text: tables and terminal pictures."""
