"""A small world with known truth, and a small real GLM-4V that learns to read it on a CPU.

world.py      documents and questions with exact gold pages
lexicon.py    their words, each with a paraphrase that never stands in a document
tokenizer.py  a tokenizer in which every word of the world is one token
lessons.py    the curriculum's trajectories: reading pages aloud, finding names, quoting codes, whole conversations
curriculum.py the sets of lessons that scripts/train_miniature.sh trains on, stage by stage
model.py      the model's shape, untrained and shipped
parse.py      a person's own document of names and codes
checkpoint/   the trained model, its configurations and logs
"""
