#!/bin/sh
# Moves the debug info and the function names of the release binaries into a file beside each, NAME.debug. The binary names that file: a
# debugger, and a backtrace where the file lies beside the binary, find it. Without that file a backtrace has only addresses. The
# message of a panic, with its place in the source, is in the binary.
# cargo puts the whole binary back in place at its next build, so that a second run finds the debug info again.
set -eu
cd "${CARGO_TARGET_DIR:-target}/release"
if ! command -v objcopy >/dev/null; then
    echo "split-debug.sh: no objcopy (binutils): the binaries keep their debug info" >&2
    exit 0
fi
for name in "$@"; do
    if ! objdump --section-headers "$name" | grep -q ' \.debug_info'; then
        continue
    fi
    objcopy --only-keep-debug --compress-debug-sections=zlib "$name" "$name.debug"
    # Under another name first: the binary in `deps`, of which this one is a link, stays whole.
    objcopy --strip-all --add-gnu-debuglink="$name.debug" "$name" "$name.small"
    mv "$name.small" "$name"
done
