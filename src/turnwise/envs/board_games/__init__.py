"""Games of two players on a board: `tic-tac-toe` and `connect-four`."""
