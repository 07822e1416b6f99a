"""Measuring: benchmarks, page selection, tokens, time; the paper's controls; reports that name every choice.

predict    a system over a benchmark's inputs → one Prediction each, in a folder that may be gone on with
longbench  a folder of predictions → scores, as the published scorer gives them
report     any number of scored runs → one HTML page, Markdown, JSON
"""
