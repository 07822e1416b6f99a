"""Seer: long text read as pictures, exact words where a question needs them.

    import seer
    document = seer.load("report.txt")
    reader = seer.Reader("path/to/checkpoint")
    answer = reader.ask(document, "What was the total?")
    print(answer.text, answer.citations, answer.usage)
"""

__version__ = "0.1.0"
