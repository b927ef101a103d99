"""Messages to token ids and back: the only package that knows chat templates."""
