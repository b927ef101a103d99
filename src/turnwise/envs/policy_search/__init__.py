"""The `policy-search` env: from a history of parameters and scores to the next parameters."""
