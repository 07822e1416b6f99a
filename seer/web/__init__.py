"""HTML reports: one element builder, one stylesheet and the components that every page shares.

`html` builds escaped elements and frames a page, `components` holds the shared parts, `wording` their plain texts.
`page` renders an evaluation report (`tables`, `plots`) and `trace` renders one reading.
"""
