"""Encodes frames as videos (H.264 in MP4, GIF) and PNG, as bytes."""

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
"""x264's constant rate factor: no visible artefacts in frames of tiles."""
SECONDS_BETWEEN_WHOLE_PICTURES = 2
"""Seconds between keyframes, which a player can seek to."""


def find_encoder() -> str:
    """Path of the ffmpeg that the extra `video` installs, or of the one in IMAGEIO_FFMPEG_EXE."""
    try:
        return require("imageio_ffmpeg", extra="video").get_ffmpeg_exe()
    except RuntimeError as error:
        raise UserError(f"no ffmpeg on this machine: {str(error).splitlines()[0]}") from None


def mp4(frames: Frames, fps: int) -> bytes:
    """Encodes an MP4 that every player and browser can play: H.264 with yuv420p pixels, which needs even numbers of
    rows and columns."""
    first, frames = _peek(frames)
    rows, columns, _ = first.shape
    with tempfile.TemporaryDirectory(prefix="advsurprise-film-") as folder:
        path = pathlib.Path(folder, "film.mp4")
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{columns}x{rows}", "-r", str(fps), "-i", "-"]
        target = ["-c:v", "libx264", "-preset", "fast", "-crf", str(QUALITY), "-pix_fmt", "yuv420p", "-an"]
        target += ["-g", str(fps * SECONDS_BETWEEN_WHOLE_PICTURES), "-movflags", "+faststart"]
        _feed([find_encoder(), "-hide_banner", "-loglevel", "error", *source, *target, str(path)], frames)
        return path.read_bytes()


def _feed(command: list[str], frames: Frames) -> None:
    """Pipes frames into a program; if it fails, the last line of its output is the error."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        assert process.stdin is not None
        try:
            with process.stdin as pipe:
                for frame in frames:
                    pipe.write(np.ascontiguousarray(frame).data)
        except BrokenPipeError:
            pass  # the exit code and output tell why
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.wait() == 0:
            return
        output.seek(0)
        lines = [line for line in output.read().decode(errors="replace").split("\n") if line]
        raise UserError(f"ffmpeg could not make the film: {lines[-1] if lines else 'it was killed'}")


def gif(frames: Frames, fps: int) -> bytes:
    """Encodes a GIF that loops forever, with at most 256 colours per frame."""
    # Octrees take a seventh of the time of Pillow's default and look the same.
    octree = Image.Quantize.FASTOCTREE
    reduced = [Image.fromarray(frame).quantize(256, octree, dither=Image.Dither.NONE) for frame in frames]
    buffer = io.BytesIO()
    reduced[0].save(buffer, "GIF", save_all=True, append_images=reduced[1:], duration=1000 / fps, loop=0)
    return buffer.getvalue()


def png(picture: UInt8[np.ndarray, "rows columns 3"]) -> bytes:
    """Encodes one picture."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def _peek(frames: Frames) -> tuple[UInt8[np.ndarray, "rows columns 3"], Frames]:
    """The first frame, and an iterator over all frames."""
    frames = iter(frames)
    first = next(frames)
    return first, itertools.chain([first], frames)
