"""Pictures as the contents of files: films (H.264 in MP4, GIF) and PNG."""

import io
import itertools
import pathlib
import subprocess
import tempfile
from collections.abc import Iterable

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from advsurprise.errors import UserError, require

Frames = Iterable[UInt8[np.ndarray, "rows columns 3"]]

QUALITY = 20
"""x264's constant rate factor: no artefacts that can be seen in pictures of tiles."""
SECONDS_BETWEEN_WHOLE_PICTURES = 2
"""How exactly a player can jump to a place in the film."""


def find_encoder() -> str:
    """The program ffmpeg that the extra `video` brings, or the one that the variable IMAGEIO_FFMPEG_EXE names."""
    try:
        return require("imageio_ffmpeg", extra="video").get_ffmpeg_exe()
    except RuntimeError as error:
        raise UserError(f"no ffmpeg for films on this machine: {str(error).splitlines()[0]}") from None


def mp4(frames: Frames, fps: int) -> bytes:
    """A film that every player and browser shows: H.264 with yuv420p pixels, which needs even numbers of rows and
    columns."""
    first, frames = _peek(frames)
    rows, columns, _ = first.shape
    with tempfile.TemporaryDirectory(prefix="advsurprise-film-") as folder:
        path = pathlib.Path(folder, "film.mp4")
        given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{columns}x{rows}", "-r", str(fps), "-i", "-"]
        asked = ["-c:v", "libx264", "-preset", "fast", "-crf", str(QUALITY), "-pix_fmt", "yuv420p", "-an"]
        asked += ["-g", str(fps * SECONDS_BETWEEN_WHOLE_PICTURES), "-movflags", "+faststart"]
        _feed([find_encoder(), "-hide_banner", "-loglevel", "error", *given, *asked, str(path)], frames)
        return path.read_bytes()


def _feed(command: list[str], frames: Frames) -> None:
    """Runs a program that reads pictures; one that fails ends with its last words."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said)
        assert process.stdin is not None
        try:
            with process.stdin as pipe:
                for frame in frames:
                    pipe.write(np.ascontiguousarray(frame).data)
        except BrokenPipeError:
            pass  # it says why
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.wait() == 0:
            return
        said.seek(0)
        lines = said.read().decode(errors="replace").split("\n")
        raise UserError(f"ffmpeg could not make the film: {([line for line in lines if line] or ['it was ended'])[-1]}")


def gif(frames: Frames, fps: int) -> bytes:
    """A film that repeats for ever, in at most 256 colours per picture."""
    # Octrees take a seventh of the time of Pillow's own choice, and look alike.
    octree = Image.Quantize.FASTOCTREE
    few = [Image.fromarray(frame).quantize(256, octree, dither=Image.Dither.NONE) for frame in frames]
    buffer = io.BytesIO()
    few[0].save(buffer, "GIF", save_all=True, append_images=few[1:], duration=1000 / fps, loop=0)
    return buffer.getvalue()


def png(picture: UInt8[np.ndarray, "rows columns 3"]) -> bytes:
    """One picture."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def _peek(frames: Frames) -> tuple[UInt8[np.ndarray, "rows columns 3"], Frames]:
    """The first picture, and all of them."""
    frames = iter(frames)
    first = next(frames)
    return first, itertools.chain([first], frames)
