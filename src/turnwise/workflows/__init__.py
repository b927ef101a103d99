"""Who speaks when, who sees what: plain async Python over `act` and `ask`."""
