"""Formats of the extra `formats`: each is read by a library that is imported when a file needs it.

archive        zip archives, within limits
epub           books
mail           e-mail messages (.eml, .msg)
notebooks      Jupyter notebooks
opendocument   OpenDocument texts, sheets and slides
richtext       RTF
slides         PowerPoint presentations
spreadsheets   Excel workbooks and CSV files
numbers        numbers and dates as a spreadsheet shows them
"""
