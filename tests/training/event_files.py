"""Reads TensorBoard's event files as TensorBoard does, with nothing but the format's description."""

import pathlib
import struct

from tensorboardX.proto import event_pb2


def events(path: pathlib.Path):
    """Every event of a file: records are a length, its checksum, the bytes and their checksum."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        at += 12 + length + 4


def scalars(folder: pathlib.Path) -> dict[tuple[str, int], float]:
    """What TensorBoard shows of a folder: values by name and step. A session that begins at a step hides all that
    earlier files hold from there on."""
    shown: dict[tuple[str, int], float] = {}
    for path in sorted(folder.iterdir()):
        for event in events(path):
            if event.session_log.status == event_pb2.SessionLog.START:
                shown = {key: value for key, value in shown.items() if key[1] < event.step}
            for value in event.summary.value:
                assert (value.tag, event.step) not in shown
                shown[value.tag, event.step] = value.simple_value
    return shown
