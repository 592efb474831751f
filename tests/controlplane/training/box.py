"""A container as far as training needs one: a process with its own files, names and process ids.

The root is an overlay of the machine's own, so that a volume can be mounted anywhere and what a
program writes is gone with it. The network is the machine's: a pod has an address in 127.0.0.0/8.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Makes the root and becomes the program. $1 is the folder of the box, $2 its host name, $3 the
#: working directory; then SOURCE TARGET pairs up to "--", then the command.
_START = r"""
set -e
box=$1 name=$2 directory=$3; shift 3
mount -t tmpfs none "$box"
mkdir "$box/upper" "$box/work" "$box/root"
mount -t overlay none -o "lowerdir=/,upperdir=$box/upper,workdir=$box/work" "$box/root"
root=$box/root
mount -t proc none "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; touch "$root$2"; fi
    mount --bind "$1" "$root$2"
    shift 2
done
shift
hostname "$name"
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$directory" "$@"
"""
_UNSHARE = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=SIGKILL")


@dataclass
class Box:
    """One container. ``folder`` is an empty directory of its own, on the machine's disk."""

    folder: Path
    host_name: str
    command: Sequence[str]
    env: Mapping[str, str]
    #: (source on the machine, absolute path in the box), in the order in which they are mounted.
    mounts: Sequence[tuple[Path, str]] = ()
    directory: str = "/"
    log: Path = field(default=Path("/dev/null"))
    _process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Run to the end; the exit code, 128 + number where a signal ended it."""
        pairs = [str(part) for pair in self.mounts for part in pair]
        script = ["sh", "-c", _START, "sh", str(self.folder), self.host_name, self.directory]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *_UNSHARE, *script, *pairs, "--", *self.command,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self.env),
            )  # fmt: skip
        try:
            code = await self._process.wait()
        except asyncio.CancelledError:
            self.kill()
            await self._process.wait()
            raise
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Send a signal to the program, as the kubelet does to a container's first process."""
        if (pid := self._program()) is not None:
            os.kill(pid, number)

    def kill(self) -> None:
        """End all of its processes: those of a namespace end with its first."""
        if self._process is not None and self._process.returncode is None:
            self.signal(signal.SIGKILL)
            self._process.kill()

    def _program(self) -> int | None:
        process = self._process
        if process is None or process.returncode is not None:
            return None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        found = children.read_text().split() if children.exists() else []
        return int(found[0]) if found else None


def shown(command: Sequence[str]) -> str:
    """For a log."""
    return shlex.join(command)
