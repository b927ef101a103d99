"""Pure functions on tensors: policy-gradient, cross-entropy and reference-KL parts."""
