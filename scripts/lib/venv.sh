# Sourced by the scripts beside this directory, from the root of the repository. Afterwards $VENV is an environment
# with the requirements of pyproject.toml; this is quick if nothing has changed.
#
#   TOBAN_EXTRAS  extras installed beside the client: daemon, postgres, web, dev (set by the script)
#   TOBAN_PYTHON  the interpreter, 3.11 or newer                               (default: python3, if it is new enough)
#   TOBAN_VENV    directory of the environment. An environment made by other means is never removed.
#                                                                              (default: .venv)
#   TOBAN_TEST_WHEEL  not empty: holds the wheel of this tree, built anew when the tree has changed, instead of the
#                 working copy. For an environment of its own
# Compiled modules are kept even if the environment forbids it: a daemon then starts in two thirds of the time.
unset PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE
VENV=${TOBAN_VENV:-$PWD/.venv}
case $VENV in
    /*) ;;
    *) VENV=$PWD/$VENV ;;
esac

# Any interpreter will do to look at the environment; the one inside is the quickest to start.
venv_found=
for venv_python in "$VENV/bin/python" ${TOBAN_PYTHON:+"$TOBAN_PYTHON"} python3 python3.13 python3.12 python3.11 python; do
    if "$venv_python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; then
        venv_found=yes
        break
    fi
done
if [ -z "$venv_found" ]; then
    echo "setup: cannot find a Python: install 3.11 or newer, or name one with TOBAN_PYTHON" >&2
    exit 1
fi
"$venv_python" -I scripts/lib/venv.py "$VENV" "${TOBAN_EXTRAS:-daemon,postgres,web,dev}" || exit 1
unset venv_python venv_found
