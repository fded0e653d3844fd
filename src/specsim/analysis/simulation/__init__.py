"""A request-level, iteration-level simulation of a vLLM-like scheduler on the step model."""
