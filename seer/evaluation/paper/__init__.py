"""Everything behind the paper's tables: plan the runs, run them, and report them beside the paper's figures.

models      models.toml: which checkpoints, addresses, judge and foreign predictions there are
plan        the runs that the tables need, as a pure function of models.toml
estimate    prompt tokens and cost of each run, without a model
execute     one planned run, resumed if its folder has a beginning
prefill     prefill time by document length, and the memory of the key-value cache (table 14)
published   the paper's figures
loaded      the runs that exist, and the reason for each that does not
tables      sections of the report by table and figure
report      the report: every table and figure of the paper has its place
"""
