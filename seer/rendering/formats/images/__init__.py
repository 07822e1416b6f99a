"""Image files: pages as a viewer shows them, and their text by OCR.

load     an image file as a document
frames   the pixels of each frame, upright, on white, 8 bits per channel
slicing  tall and wide images cut into pages
"""
