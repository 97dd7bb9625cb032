# The peer "irdma": rdma-core's provider for the E810, version 56.1 as Debian trixie has it.
#
# Sourced by `run`, in the folder that the peer may fill. Sets `version` and `program`.
# The sources come from Debian's archive through apt, which checks them against the signed index; they
# stay under target/. Debian's own patches are not applied.

peer_version=56.1
peer_needs='apt-get gcc ar python3 tar'

peer_fetch() {
    [ -d "rdma-core-$peer_version" ] && return
    mkdir -p apt/lists/partial apt/cache/archives/partial
    # the mirror that this machine's apt uses, or MIRROR=URL
    mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
        grep -E '/debian/?$' | sort -u | head -1)}
    [ -n "$mirror" ] || { echo 'no Debian mirror in the apt sources of this machine; set MIRROR' >&2; return 1; }
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" \
        > apt/sources.list
    cat > apt/apt.conf <<END
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt/cache";
APT::Sandbox::User "";
END
    APT_CONFIG=$PWD/apt/apt.conf apt-get -qq update >&2
    # The archive's description may be missing on a mirror; the sources themselves are what counts.
    APT_CONFIG=$PWD/apt/apt.conf apt-get -qq source --download-only rdma-core >&2 || true
    [ -f "rdma-core_$peer_version.orig.tar.gz" ] || {
        echo "benches/peers/run: rdma-core $peer_version is not in Debian trixie any more: change peer_version in irdma.sh" >&2
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
