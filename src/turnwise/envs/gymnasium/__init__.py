"""The `gymnasium` env: any Gymnasium env with a text for its observations."""
