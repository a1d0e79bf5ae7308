"""Measurements of the project itself; each file says how it is run."""
