"""Conformance checks of envs, in full (`check_env`) and in short (`look_at`)."""
