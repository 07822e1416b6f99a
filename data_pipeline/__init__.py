"""From public question sets to trajectories: load, guard, judge pages, reason, filter, assemble, shard."""
