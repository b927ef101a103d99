"""`python -m turnwise` is the command `turnwise`."""

from turnwise.cli.main import app

app()
