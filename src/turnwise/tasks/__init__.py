"""Where problems come from: generated, JSONL, CSV; and the hash split that keeps tests unseen."""
