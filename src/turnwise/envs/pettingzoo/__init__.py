"""The `pettingzoo` env: any PettingZoo env with a text for its observations."""
