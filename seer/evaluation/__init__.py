"""Measure systems on benchmarks: predict, score, analyse and report.

files, jsonlines   the folder of a run on disk; JSON-lines input with precise errors
scoring            metrics: one prediction and its gold answer → a number in [0, 1]
benchmarks         records and tasks of LongBench, document QA and custom benchmarks
runs               run a system over a benchmark, and score the folder of predictions
harness            run the tasks of lm-evaluation-harness against `seer serve`
analysis           tokens, page selection, latency, confidence intervals, frontiers
reports            scored runs → one HTML page, Markdown and JSON
paper              every table of the paper from one plan of runs

Each folder imports only from those above it. Every input gets a prediction; a failed input counts 0.
"""
