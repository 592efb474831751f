"""Programs that Muster itself puts into containers: unlike its users', a log may show them.

Below the job kinds, which use them, so that :mod:`extender.core.redact` can know them.
"""

from __future__ import annotations

from typing import Final

#: $1 is a host, $2 a port: ends once a connection can be opened. Python is in what trains, nc in what
#: is small. A shell that is a container's first process dies of no signal that it has not trapped.
DIAL: Final = """\
trap 'exit 143' TERM INT
dial='import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()'
for tool in python3 python bash nc none; do command -v "$tool" >/dev/null 2>&1 && break; done
reached() {
    case $tool in
        python*) "$tool" -c "$dial" "$1" "$2" ;;
        bash) bash -c ': <"/dev/tcp/$0/$1"' "$1" "$2" ;;
        nc) nc -z -w 5 "$1" "$2" ;;
        *) echo "no python3, python, bash or nc here to try a port with: not waiting" ;;
    esac
}
echo "waiting for $1:$2"
until reached "$1" "$2" 2>/dev/null; do sleep 1; done
echo "done"
"""
