"""Files of trajectories: format, writer and reader."""
