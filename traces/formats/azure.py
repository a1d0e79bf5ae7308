"""Azure LLM inference traces of 2023 (seven-digit fractions) and 2024 (a zone, fractions only where
needed)."""

from traces.layout import Layout

LAYOUTS = (Layout(("csv",), "ContextTokens", "GeneratedTokens", "TIMESTAMP", "iso"),)
