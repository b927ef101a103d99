"""Helpers without a part in training: imports of user code, data files, documents."""
