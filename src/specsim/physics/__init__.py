"""Numbers in, seconds, bytes, tokens and dollars out.

Pure functions on floats or numpy arrays: every numeric argument broadcasts against the others,
scalars in give scalars out, nothing is read from disk and no schema object is known here. The
small frozen dataclasses only group numbers that always travel together.
"""
