"""PDF files: pages as they are shown, and the text that they show.

load         a PDF as a document: pages, warnings, OCR where the text layer is unusable
file         an open file: text, images and boxes of its pages
reading      the text of one page: what the page shows, in reading order
objects      what a page paints, in which order
hidden       text that is not seen
order        columns and tables
segments     words in a line
annotations  form fields, notes and stamps
irregular    signs that a page needs a look at each of its characters
charmap      fonts whose text is not what they draw
characters   the characters of a page with their boxes
geometry     coordinates, rotation and crop box
library      pdfium's functions, called with plain integers
"""

from seer.rendering.formats.pdf.file import PdfFile
from seer.rendering.formats.pdf.load import DEFAULT_DPI, load_pdf

__all__ = ["DEFAULT_DPI", "PdfFile", "load_pdf"]
