"""One module per kind of file; `specsim.measure.read` chooses."""
