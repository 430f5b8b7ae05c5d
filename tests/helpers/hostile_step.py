"""A step that tries to get at the daemon, its supervisors and their files, and names everything that it reached.

Its environment: `state`, the state directory; `pids`, those of daemon, spawner and shims; `config` and `sockets`, paths
that are closed to it; `python`, an interpreter. A step that reached nothing prints `NOTHING`.
"""

from __future__ import annotations

ATTACK = r"""
try_open() {
    for file; do
        (exec 3< "$file") 2>/dev/null && echo "read $file"
        (exec 3>> "$file") 2>/dev/null && echo "wrote $file"
    done
}
try_open "$state"/toban.db "$state"/toban.db-wal "$state"/installation.json "$state"/spawner.log
try_open "$state"/secrets.key $config
ls "$state" "$state/runs" "$state/runs/.claims" "$(dirname "$TOBAN_OUTPUT")" 2>/dev/null && echo listed
try_open "$state"/runs/*/attempts/*.log "$(echo "$TOBAN_OUTPUT" | sed 's/out$/log/')"
( : > "$state/planted" ) 2>/dev/null && echo planted
( : > "$(dirname "$TOBAN_OUTPUT")/planted" ) 2>/dev/null && echo planted
for pid in $pids; do
    try_open /proc/$pid/mem /proc/$pid/environ /proc/$pid/maps
    ls /proc/$pid/fd >/dev/null 2>&1 && echo "descriptors of $pid"
    for signal in TERM STOP KILL 0; do kill -$signal $pid 2>/dev/null && echo "signalled $pid"; done
done
"$python" - $pids <<'END' 2>/dev/null
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, sys.argv[1:]):
    for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
        if libc.ptrace(request, pid, 0, 0) == 0:
            print("traced", pid)
    for call in (os.setuid, os.setgid):
        try:
            call(os.stat(f"/proc/{pid}").st_uid)
            print("became", pid)
        except OSError:
            pass
for path in os.environ["sockets"].split():
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("connected", path)
    except OSError:
        pass
print("tried")
END
echo over
"""
NOTHING = "tried\nover\n"
