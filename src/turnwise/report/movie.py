"""Movies of frames: GIF files by Pillow, and MP4 files by ffmpeg where it is installed.

Provides `write_movie`, and `gif_of`, a GIF of bounded size.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.errors import ConfigError
from turnwise.utils.text import printable

if TYPE_CHECKING:
    from PIL.Image import Image

    from turnwise.envs.frames import Frame

SIDES = (24, 8)
"""The sides of a cell in pixels on small and on large maps."""
WIDEST = 480
"""The width in pixels from which on cells are smaller."""
LONGEST = 200
"""The most characters of a caption."""
CAPTION = 18
"""The height of the text in pixels."""
LINE = (225, 225, 225)
MOST_FRAMES, MOST_BYTES = 120, 1_000_000
"""The most pictures and bytes of a GIF of bounded size."""


def write_movie(path: Path, frames: Sequence[Frame], seconds: float) -> None:
    """Write frames of one size to a .gif or .mp4 file, each shown for some seconds.

    Raises:
        ConfigError: if the name of the file ends otherwise, there are no frames, ffmpeg is missing
            for a .mp4 file, or the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise ConfigError(f"'{path}' is no movie: give a name that ends in .gif or .mp4")
    if not frames:
        raise ConfigError("there is no frame to write: the env draws none (Env.frame)")
    ffmpeg = shutil.which("ffmpeg")
    if kind == ".mp4" and ffmpeg is None:
        raise ConfigError(f"'{path}' needs ffmpeg, which is not installed: install it or use .gif")
    images = [_image(frame) for frame in frames]
    try:
        if kind == ".gif":
            _write_gif(path, images, seconds)
        else:
            assert ffmpeg is not None, "checked above"
            _write_mp4(path, images, seconds, ffmpeg)
    except OSError as error:
        raise ConfigError(
            f"'{path}' cannot be written ({error.strerror or error}): choose another file"
        ) from error


def gif_of(frames: Sequence[Frame], seconds: float, most_bytes: int = MOST_BYTES) -> bytes:
    """Return frames of one size as a GIF of at most `MOST_FRAMES` pictures and `most_bytes` bytes.

    Pictures are left out evenly until it is small enough; the first and the last one stay. Two
    pictures may need more bytes.

    Args:
        frames: at least one.
        seconds: for which a picture is shown.
        most_bytes: the size from which on pictures are left out.
    """
    count = min(len(frames), MOST_FRAMES)
    while True:
        last = max(count - 1, 1)
        kept = [frames[round(i * (len(frames) - 1) / last)] for i in range(count)]
        buffer = io.BytesIO()
        _write_gif(buffer, (_image(frame) for frame in kept), seconds)
        if buffer.tell() <= most_bytes or count <= 2:
            return buffer.getvalue()
        count = max(2, min(count - 1, count * most_bytes // buffer.tell()))


def _write_gif(target: Path | io.BytesIO, images: Iterable[Image], seconds: float) -> None:
    small = (image.quantize(64) for image in images)  # large pictures are not all in memory
    next(small).save(
        target,
        format="GIF",
        save_all=True,
        append_images=small,
        duration=round(1000 * seconds),
        loop=0,
    )


def _write_mp4(path: Path, images: Sequence[Image], seconds: float, ffmpeg: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, image in enumerate(images):
            image.save(Path(folder) / f"{number:06d}.png")
        command = [ffmpeg, "-y", "-loglevel", "error", "-framerate", f"{1 / seconds:g}"]
        command += ["-i", f"{folder}/%06d.png", "-pix_fmt", "yuv420p", "-vf", _EVEN, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(
            f"ffmpeg cannot write '{path}' ({done.stderr.strip()[-200:]}): use a .gif file"
        )


_EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2"
"""The filter that makes both sides even, which the pixel format needs."""


def _image(frame: Frame) -> Image:
    """Return the image of a frame."""
    from PIL import Image, ImageDraw, ImageFont

    rows, columns = frame.size
    side = max(SIDES[1], min(SIDES[0], WIDEST // columns))
    image = Image.new("RGB", (columns * side, rows * side + CAPTION), (255, 255, 255))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default()
    for y, row in enumerate(frame.cells):
        for x, cell in enumerate(row):
            box = (x * side, y * side, (x + 1) * side, (y + 1) * side)
            draw.rectangle(box, fill=cell.behind, outline=LINE)
            if cell.text:
                middle = ((x + 0.5) * side, (y + 0.5) * side)
                shown = printable(cell.text[:1])
                draw.text(middle, shown, fill=cell.colour, font=font, anchor="mm")
    caption = printable(frame.caption[:LONGEST])
    draw.text((2, rows * side + 3), caption, fill=(0, 0, 0), font=font)
    return image
