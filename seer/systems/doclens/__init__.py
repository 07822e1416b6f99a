"""DocLens: navigate to pages, localise elements, sample answers, adjudicate."""
