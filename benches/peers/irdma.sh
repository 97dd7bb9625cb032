# The peer "irdma": rdma-core's provider for the E810, in the version that tests/guest/judges pins.
#
# Sourced by `run`, in the folder that the peer may fill. Sets `version` and `program`.
# Built as a static archive, driven by drive.c and irdma.c with the functions of card.h.

peer_version=$(awk '$1 == "rdma-core" { sub(/-.*/, "", $5); print $5 }' "$peer_judges")
[ -n "$peer_version" ] || { echo "benches/peers/run: tests/guest/judges does not name rdma-core" >&2; exit 3; }
peer_needs='apt-get gcc ar python3 tar valgrind'

peer_fetch() {
    [ -d "rdma-core-$peer_version" ] && return
    debian_source rdma-core
    [ -f "rdma-core_$peer_version.orig.tar.gz" ] || {
        echo "benches/peers/run: rdma-core $peer_version is not in Debian trixie any more: change rdma-core in tests/guest/judges" >&2
        exit 3
    }
    tar xf "rdma-core_$peer_version.orig.tar.gz"
}

# Headers where rdma-core's own build puts them, and what it finds out about the compiler.
peer_headers() {
    mkdir -p include/infiniband include/util include/ccan include/rdma include/kernel-abi
    for folder in libibverbs:infiniband util:util ccan:ccan kernel-headers/rdma:rdma; do
        for header in "$source/${folder%%:*}"/*.h; do ln -sf "$header" "include/${folder##*:}/"; done
    done
    for header in irdma-abi.h ib_user_verbs.h; do
        (cd "$source/kernel-headers" &&
            python3 ../buildlib/make_abi_structs.py "rdma/$header" "$here/include/kernel-abi/$header")
    done
    for answer in HAVE_STATEMENT_EXPR HAVE_BUILTIN_TYPES_COMPATIBLE_P HAVE_TYPEOF HAVE_ISBLANK \
        HAVE_BUILTIN_CLZ HAVE_BUILTIN_CLZL HAVE_LITTLE_ENDIAN HAVE_FUNC_ATTRIBUTE_ALWAYS_INLINE; do
        echo "#define $answer 1"
    done > include/config.h
    echo '#define SIZEOF_LONG 8' >> include/config.h
}

peer_build() { # folder of our own sources
    here=$PWD
    source=$here/rdma-core-$peer_version
    peer_headers
    flags="-O2 -g -DNDEBUG -D_GNU_SOURCE -ffunction-sections -fdata-sections -include include/config.h \
        -Iinclude -I$source/providers/irdma -I$source/kernel-headers -I$1"
    for file in uk uverbs; do
        # shellcheck disable=SC2086
        gcc $flags -w -c "$source/providers/irdma/$file.c" -o "$file.o"
    done
    rm -f libirdma.a
    ar rcs libirdma.a uk.o uverbs.o
    # shellcheck disable=SC2086
    gcc $flags -Wall -Wl,--gc-sections "$1/drive.c" "$1/irdma.c" libirdma.a -lpthread -o drive
    program=$here/drive
    version="rdma-core $peer_version (irdma), $(gcc --version | head -1), -O2"
}

count() { # function, command
    counted=$1
    shift
    total=$(valgrind --tool=callgrind --callgrind-out-file="$scratch/out" --toggle-collect="*$counted*" "$@" 2>&1 >/dev/null |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p')
    [ -n "$total" ] && [ "$total" -gt 0 ] || { echo "nothing was counted for $counted" >&2; exit 3; }
    echo "$total $rounds" | awk '{ printf "%.1f", $1 / $2 }'
}

peer_compare() { # peer
    rounds=10240
    ours --no-default-features instructions
    printf '%-52s %9s %9s %7s\n' "8-byte RDMA write, one in flight" ringside "$1" ratio
    own=$(count measured_harness "$ours" harness "$rounds")
    its=$(count measured_harness "$program" harness "$rounds")
    one=$(count measured_round_trips "$ours" round-trips "$rounds")
    other=$(count measured_round_trips "$program" instructions "$rounds")
    row "instructions, with the harness" "$one" "$other"
    row "the harness by itself" "$own" "$its"
    row "instructions, without it" "$(less "$one" "$own")" "$(less "$other" "$its")"
    one=$(count measured_inline_round_trips "$ours" inline-round-trips "$rounds")
    other=$(count measured_round_trips "$program" instructions "$rounds" inline)
    row "data in the element, with the harness" "$one" "$other"
    : > "$scratch/ours"
    : > "$scratch/theirs"
    for _ in 1 2 3 4 5 6 7; do
        "$ours" time-round-trips 400000 >> "$scratch/ours"
        "$program" time 400000 >> "$scratch/theirs"
    done
    row "time, ns: median of 7 runs in turn, with the harness" "$(median "$scratch/ours")" "$(median "$scratch/theirs")"
}
