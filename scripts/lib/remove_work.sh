#!/bin/sh
# remove_work.sh DIRECTORY: removes a directory of tests. What a test that was killed left mounted in it is unmounted
# first: a removal would go on through the mount, and a directory of this machine may be bound there.
set -eu
work=$(cd "$1" && pwd -P)

# In the shell itself: a missing program must not look like no mounts.
mounted() {
    [ -e /proc/self/mountinfo ] || return 0
    while read -r _ _ _ _ place _; do
        case $place in
            "$work" | "$work"/*) echo "$place" ;;
        esac
    done </proc/self/mountinfo
}

found=$(mounted)
if [ -n "$found" ]; then
    # The innermost first. The kernel writes a space as \040.
    echo "$found" | sort -r | while read -r place; do
        umount -l "$(printf '%b' "$place")" || true
    done
    found=$(mounted)
fi
if [ -n "$found" ]; then
    echo "$work is left, because something is mounted in it. Unmount it before you remove the directory:" >&2
    echo "$found" >&2
    exit 1
fi
exec rm -rf --one-file-system "$work"
