"""The engine of this machine: transformers models, continuous batching, shared prefixes."""
