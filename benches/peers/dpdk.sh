# The peer "dpdk": the ice driver of DPDK as Debian trixie has it, or of DPDK_SOURCE=FOLDER (24.11 and 25.11 are
# known to build).
#
# Sourced by `run`, in the folder that the peer may fill. Sets `version` and `program`.
# Only the ice driver and the libraries that it needs are built, as static archives, by DPDK's own build.

peer_needs='apt-get gcc meson ninja nm tar'

peer_fetch() {
    source=${DPDK_SOURCE:-}
    if [ -z "$source" ]; then
        source=$(find "$PWD" -maxdepth 1 -name 'dpdk-*' -type d | head -1)
    fi
    if [ -z "$source" ]; then
        debian_source dpdk
        for archive in dpdk_*.orig.tar.xz; do
            [ -f "$archive" ] || {
                echo "benches/peers/run: this mirror has no source of dpdk; unpack a release of DPDK and set DPDK_SOURCE=FOLDER" >&2
                exit 3
            }
            tar xf "$archive"
        done
        source=$(find "$PWD" -maxdepth 1 -name 'dpdk-*' -type d | head -1)
    fi
    [ -f "$source/VERSION" ] || { echo "benches/peers/run: $source is not a source tree of DPDK" >&2; exit 3; }
    peer_version=$(cat "$source/VERSION")
}

# Folders of headers: of DPDK's libraries, of the buses, and the driver's own.
peer_headers() {
    for folder in "$source"/lib/* "$source"/lib/eal/include "$source"/lib/eal/linux/include \
        "$source"/lib/eal/x86/include "$source"/drivers/bus/pci "$source"/drivers/bus/pci/linux \
        "$source"/drivers/common/iavf "$source"/drivers/net/ice "$source"/drivers/net/ice/base \
        "$source"/drivers/net/intel/* "$source"/drivers/net/intel/ice/base "$source"/config "$build"; do
        [ -d "$folder" ] && printf ' -I%s' "$folder"
    done
}

peer_build() { # folder of our own sources
    build=$PWD/build-$peer_version
    if [ ! -f "$build/built" ]; then
        echo "building DPDK $peer_version: some minutes" >&2
        # DPDK's build needs Python with elftools: Debian's package python3-pyelftools
        PATH=/usr/bin:$PATH meson setup "$build" "$source" --buildtype=release -Ddefault_library=static \
            -Dplatform=generic -Dtests=false -Denable_docs=false -Ddeveloper_mode=disabled -Denable_apps=none \
            -Denable_drivers=bus/pci,bus/vdev,bus/auxiliary,common/iavf,mempool/ring,net/ice '-Ddisable_libs=*' \
            > meson.log 2>&1 || { tail -5 meson.log >&2; exit 3; }
        # shellcheck disable=SC2046
        PATH=/usr/bin:$PATH ninja -C "$build" \
            $(ninja -C "$build" -t targets all | sed -n 's/^\(\(lib\|drivers\)\/librte_[a-z_]*\.a\):.*/\1/p') \
            > ninja.log 2>&1 || { tail -20 ninja.log >&2; exit 3; }
        touch "$build/built"
    fi
    grep -q 'RTE_HAS_LIBNUMA 1' "$build/rte_build_config.h" && numa=-lnuma || numa=''
    # shellcheck disable=SC2046,SC2086
    gcc -O3 -g -march=corei7 -DALLOW_INTERNAL_API -DALLOW_EXPERIMENTAL_API -D_GNU_SOURCE -include rte_config.h \
        $(peer_headers) -I"$1" -Wall "$1/dpdk.c" -o drive -Wl,--gc-sections \
        -Wl,--whole-archive "$build/drivers/librte_mempool_ring.a" -Wl,--no-whole-archive \
        -Wl,--start-group "$build"/drivers/librte_*.a "$build"/lib/librte_*.a -Wl,--end-group $numa -lm -lpthread -ldl
    gcc -O2 -Wall -Werror -o step "$1/../step.c"
    program=$PWD/drive step=$PWD/step
    version="DPDK $peer_version (ice), $(gcc --version | head -1), release"
}

# Instructions a packet inside measured_receive and measured_send, by single steps: no simulator knows them all.
count_packets() { # program and its arguments
    functions=$(nm "$1" | awk '/measured_receive|measured_send/ && / [tT] / { printf "%s%s", between, $1; between = "," }')
    counted=$("$step" "$functions" "$@" | tail -1)
    [ "$(echo "$counted" | wc -w)" -eq 4 ] || { echo "nothing was counted for $*" >&2; exit 3; }
    echo "$counted $packets" | awk '{ printf "%.1f", $1 / $5 }'
}

# Medians of 7 runs of either side in turn, in nanoseconds a packet: `one` and `other`.
time_packets() { # case, way
    : > "$scratch/ours"
    : > "$scratch/theirs"
    for _ in 1 2 3 4 5 6 7; do
        RINGSIDE_PACKET_PATH=$path "$ours" "time-$1" 640000 >> "$scratch/ours"
        "$program" "time-$1" 640000 "$path" "$2" | tail -1 >> "$scratch/theirs"
    done
    one=$(median "$scratch/ours") other=$(median "$scratch/theirs")
}

peer_compare() { # peer
    packets=5120
    ours '' lan
    # Huge pages for the peer's packets if there are some; ours are on pages of 4 KiB in either case.
    pages='pages of 4 KiB for both'
    if [ "$(awk '/HugePages_Free/ { print $2 }' /proc/meminfo)" -ge 48 ]; then
        export PEER_HUGE_PAGES=1
        pages="huge pages for $1, pages of 4 KiB for ringside"
    fi
    echo "Ringside gives checksums and the hash with each packet, and a packet may have several owners, in each row."
    echo "Of $1: \"offloads\" gives them too; \"plain\" does not; \"fast-free\" is as plain, with one owner and one pool."
    echo "Times: medians of 7 runs in turn; $pages."
    for path in scalar avx2 avx512; do
        case $path in
        scalar) flags='' ;;
        avx2) flags=avx2 ;;
        avx512) flags='avx2 avx512f avx512bw avx512dq avx512vl' ;;
        esac
        for flag in $flags; do
            grep -qw "$flag" /proc/cpuinfo || { printf '\npath %s: not run, this processor has no %s\n' "$path" "$flag"; continue 2; }
        done
        compare_path "$1"
    done
}

# Of $path: instructions and time, for each case and each way of the peer.
compare_path() { # peer
    printf '\n%-52s %9s %9s %7s\n' "path $path, a packet of a burst of 32" ringside "$1" ratio
    for case in receive forward; do
        own=$(RINGSIDE_PACKET_PATH=$path count_packets "$ours" "$case" "$packets")
        for way in offloads plain fast-free; do
            [ "$case" = receive ] && [ "$way" = fast-free ] && continue
            its=$(count_packets "$program" "$case" "$packets" "$path" "$way")
            time_packets "$case" "$way"
            row "$case: instructions; $1 with $way" "$own" "$its"
            row "$case: ns; $1 with $way" "$one" "$other"
        done
    done
}
