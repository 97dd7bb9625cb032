# Sourced by setup, kernel and dpdk: Debian packages, fetched and unpacked without root; nothing is installed on this machine.
# They come from the mirror that this machine's apt uses (or MIRROR=URL). `../judges` says which suite and version.

say() { printf 'rig [%3d s] %s\n' "$SECONDS" "$*" >&2; }
give_up() { echo "rig: $*" >&2; exit 3; }

judges=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/judges

for tool in apt-get apt-cache dpkg-deb python3 xz zstd; do
  command -v "$tool" >/dev/null || give_up "this machine has no $tool"
done

# One field of a judge's row: kind, suite, package or version.
judge() {
  local -A column=([kind]=2 [suite]=3 [package]=4 [version]=5)
  awk -v name="$1" -v at="${column[$2]}" '$1 == name { print $at }' "$judges"
}

# The Debian mirror of this machine's apt; nothing if there is none.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | sort -u | head -1 || true
}

# with_suites FOLDER SUITE...   an apt of its own in FOLDER/apt, which knows nothing as installed
with_suites() {
  local folder=$1 mirror key=/usr/share/keyrings/debian-archive-keyring.gpg suite
  shift
  mirror=${MIRROR:-$(debian_mirror)}
  if [ -z "$mirror" ] && [ "$(id -u)" -eq 0 ]; then
    # apt names its mirrors only once it has their lists.
    apt-get update -qq >/dev/null 2>&1 || true
    mirror=$(debian_mirror)
  fi
  [ -n "$mirror" ] || give_up 'apt on this machine knows no Debian mirror: run apt-get update, or set MIRROR=URL'
  apt=$folder/apt
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,log}
  : >"$apt/status"
  : >"$apt/preferences"
  for suite in "$@"; do echo "deb [signed-by=$key] $mirror $suite main non-free-firmware"; done >"$apt/sources.list"
  cat >"$apt/apt.conf" <<CONF
Dir::State "$apt"; Dir::State::Lists "$apt/lists"; Dir::State::status "$apt/status";
Dir::Cache "$apt/cache"; Dir::Log "$apt/log";
Dir::Etc::SourceList "$apt/sources.list"; Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "$apt/preferences"; Dir::Etc::PreferencesParts "/dev/null";
Debug::NoLocking "1"; APT::Install-Recommends "0"; APT::Sandbox::User ""; DPkg::Post-Invoke "";
Acquire::Check-Valid-Until "0"; Acquire::Languages "none"; Acquire::Retries "2"; Acquire::http::Timeout "30";
CONF
  export APT_CONFIG=$apt/apt.conf
  apt-get -q update >"$apt/update.log" 2>&1 || unfetched
  say "package lists of $*"
}

unfetched() { give_up "the packages could not be fetched from the mirror; see $apt/*.log"; }

# take JUDGE   the version of a judge's package to fetch; notes it in FOLDER/judges beside the apt folder
take() {
  local package suite kind version found note=''
  package=$(judge "$1" package) suite=$(judge "$1" suite) kind=$(judge "$1" kind) version=$(judge "$1" version)
  found=$(apt-cache madison "$package" | awk -v suite="$suite/" 'index($5, suite) == 1 || index($6, suite) == 1 { print $3 }')
  [ -n "$found" ] || give_up "$suite has no package $package"
  local newest=${found%%$'\n'*}
  if [ "$kind" = pinned ] && ! grep -qxF -- "$version" <<<"$found"; then
    note="pinned is $version, which $suite no longer has"
  elif [ "$kind" = moving ] && [ "$newest" != "$version" ]; then
    note="new since the last look, which saw $version"
  fi
  [ "$kind" = pinned ] && [ -z "$note" ] || version=$newest
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$kind" "$suite" "$package" "$version" "$note" >>"$(dirname "$apt")/judges"
  echo "$version"
}

# fetch PACKAGE[=VERSION]...   into the cache, with all that they depend on
fetch() { apt-get -q -y --download-only install "$@" >>"$apt/download.log" 2>&1 || unfetched; }

# fetch_alone PACKAGE[=VERSION]...   into the cache, without what they depend on
fetch_alone() { (cd "$apt/cache/archives" && apt-get -q download "$@" >>"$apt/download.log" 2>&1) || unfetched; }

# unpack ROOT   all packages of the cache
unpack() {
  local package
  mkdir -p "$1"
  # base-files first: it holds the links of a merged /usr.
  for package in "$apt"/cache/archives/base-files_*.deb "$apt"/cache/archives/*.deb; do
    [ ! -e "$package" ] || dpkg-deb -x "$package" "$1"
  done
  [ -e "$1/lib" ] || ln -s usr/lib "$1/lib"
  say "unpacked: $(du -sh "$1" | cut -f1)"
  rm -rf "$apt"
}
