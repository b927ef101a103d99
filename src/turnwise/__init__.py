"""turnwise: train language-model agents, alone or in teams, by playing."""
