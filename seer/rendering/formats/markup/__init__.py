"""Web pages: visible text, formulas, and what is hidden."""
