#!/bin/sh
# buf_breaking.sh BUF [PROTO]: refuses a contract that breaks clients of the committed one. Run from the root of the repository.
set -eu
"$1" breaking "${2:-proto}" --against proto/buf-image.binpb && exit 0
cat <<'MESSAGE'
proto/ breaks clients that were built for the contract in proto/buf-image.binpb. Add fields and methods instead: keep the
old ones, and mark them deprecated. If the break is intended, take the new contract as the one to compare with, and
commit it together with the change and a line under "Changed" in CHANGELOG.md that names the break:

    scripts/gen-protos --image && git add proto/buf-image.binpb
MESSAGE
exit 1
