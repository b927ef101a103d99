"""The loops: grpo, sft."""
