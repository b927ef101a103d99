"""Messages to token ids and back, and named spans of a reply.

No other package knows chat templates. Knows nothing of models, engines or rewards. No torch.
"""

from turnwise.render.renderer import RenderConfig, Renderer
from turnwise.render.spans import find_spans
from turnwise.render.text import TextRenderer

__all__ = ["RenderConfig", "Renderer", "TextRenderer", "find_spans"]
