"""Keys, units and estimators: episodes in, advantages out. Pure numpy."""
