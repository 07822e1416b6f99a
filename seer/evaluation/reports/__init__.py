"""Reports on scored runs: sections, tables and charts in HTML, Markdown and JSON."""
