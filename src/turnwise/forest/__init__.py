"""Samples become a token forest: every distinct prefix is computed once."""
