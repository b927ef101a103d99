"""One task becomes an episode: the runner between env, agent and engine."""
