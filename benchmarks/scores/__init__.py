"""How far predictions lie from published measurements: one module a kind of measurement."""
