"""Messages <-> token ids: the only package that knows chat templates, and named spans of a reply.

Knows nothing of models, engines or rewards. No torch.
"""

from turnwise.render.renderer import RenderConfig, Renderer
from turnwise.render.spans import find_spans

__all__ = ["RenderConfig", "Renderer", "find_spans"]
