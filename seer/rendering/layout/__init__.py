"""Layout of text: fonts, measurement, line breaking, bidirectional text, and placement on pages."""
