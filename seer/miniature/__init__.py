"""A small synthetic world with known answers, and a small GLM-4V model that learns to read it on a CPU.

world.py      documents and questions with exact gold pages
lexicon.py    the printed names, each with a paraphrase that no document contains
tokenizer.py  a tokenizer in which every word of the world is one token
lessons.py    training trajectories: reading pages aloud, finding names, quoting codes, whole conversations
curriculum.py the lesson sets that scripts/train_miniature.sh trains on, stage by stage
model.py      the model's shape, untrained and trained checkpoints
learning.py   the training summary beside a checkpoint, and the learning curve in reports
parse.py      a user's own document of names and codes
controls.py   the paper's control experiments as benchmark runs
report.py     the report over those runs
demo.py       `seer demo`: read a document live, score held-out questions, write a report
checkpoint/   the trained model with its training summary, training.json
checkpoint_iso/  the control model, trained without select turns
"""
