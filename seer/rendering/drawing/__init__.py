"""Drawing of laid-out pages to images and PDF."""
