"""Which task comes next."""
