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

# counted NAME OURS THEIRS OUR_FUNCTION THEIR_FUNCTION   a row; OURS and THEIRS are words behind the programs
counted() {
    # shellcheck disable=SC2086
    one=$(count "$4" "$ours" $2)
    # shellcheck disable=SC2086
    other=$(count "$5" "$program" $3)
    row "$1" "$one" "$other"
}

peer_compare() { # peer
    rounds=10240
    ours --no-default-features instructions
    printf '%-52s %9s %9s %7s\n' "instructions" ringside "$1" ratio
    counted "8-byte RDMA write, one in flight" "round-trips $rounds" "instructions $rounds" measured_round_trips measured_round_trips
    whole=$one its_whole=$other
    counted "the harness by itself" "harness $rounds" "harness $rounds" measured_harness measured_harness
    row "the write without it" "$(less "$whole" "$one")" "$(less "$its_whole" "$other")"
    counted "the write, data in the element" "inline-round-trips $rounds" "instructions $rounds inline" \
        measured_inline_round_trips measured_round_trips
    counted "8-byte send" "sends $rounds" "instructions $rounds send" measured_sends measured_round_trips
    counted "8-byte read" "reads $rounds" "instructions $rounds read" measured_reads measured_round_trips
    counted "8-byte datagram" "datagrams $rounds" "instructions $rounds datagram" measured_datagrams measured_round_trips
    counted "receive: completion written, polled, posted again" "own-receives $rounds" "instructions $rounds receive" \
        measured_own_receives measured_receives
    counted "a post, in chains of 32" "chains $rounds" "chains $rounds" measured_chain_of_posts measured_chain_of_posts
    counted "a poll, in chains of 32" "chains $rounds" "chains $rounds" measured_chain_of_polls measured_chain_of_polls
    : > "$scratch/ours"
    : > "$scratch/theirs"
    for _ in 1 2 3 4 5 6 7; do
        "$ours" time-round-trips 400000 >> "$scratch/ours"
        "$program" time 400000 >> "$scratch/theirs"
    done
    row "time of the write, ns: median of 7 runs in turn" "$(median "$scratch/ours")" "$(median "$scratch/theirs")"
}
