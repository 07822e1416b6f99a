"""Analysis of scored runs: tokens, page selection, latency, confidence intervals and frontiers."""
