"""Weights: full, LoRA, nano; loading and saving in the usual formats."""
