"""Drawing programs: primitives on grids, an interpreter, and the env `arc-draw`."""
