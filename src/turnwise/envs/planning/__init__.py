"""Planning puzzles as envs of a team: a tool that calls functions, and a planner that moves."""
