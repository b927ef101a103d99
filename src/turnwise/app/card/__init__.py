"""Model cards: a finished run as a folder for the Hugging Face hub."""

from turnwise.app.card.files import published_files
from turnwise.app.card.write import write_card

__all__ = ["published_files", "write_card"]
