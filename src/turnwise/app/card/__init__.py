"""Model cards: a finished run as a folder for the Hugging Face hub, and its upload."""
