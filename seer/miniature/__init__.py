"""A small world with known truth, and a small real GLM-4V that learns to read it on a CPU.

world.py      documents and questions with exact gold pages
lexicon.py    their words, each with a paraphrase that never stands in a document
tokenizer.py  a tokenizer in which every word of the world is one token
lessons.py    the curriculum's trajectories: reading pages aloud, finding words, whole conversations
"""
