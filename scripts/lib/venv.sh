# Sourced by the scripts beside it: makes .venv with what the project's own files ask for, once per change of them.
# After it, $VENV is the environment's directory. TOBAN_PYTHON chooses the interpreter, TOBAN_EXTRAS what is installed.
VENV=${TOBAN_VENV:-$PWD/.venv}
