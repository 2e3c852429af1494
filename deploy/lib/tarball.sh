# Carillon · tarball.sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks and unpacks tarballs of deploy/package. Source after messages.sh.

# check_files FOLDER: whether its files match its SHA256SUMS; prints the differences.
check_files() (
    cd "$1" && [[ -e SHA256SUMS ]] || { echo "SHA256SUMS: missing" && exit 1; }
    # Refuse links and devices, which have no checksum.
    ! find . ! -type f ! -type d -printf '%P: neither a file nor a folder\n' | grep . || exit 1
    sha256sum --check --strict --quiet SHA256SUMS 2>&1 || exit 1
    ! LC_ALL=C comm -13 <(cut -c 67- SHA256SUMS | LC_ALL=C sort) \
        <(find . -type f ! -path ./SHA256SUMS -printf '%P\n' | LC_ALL=C sort) | sed 's/$/: not in SHA256SUMS/' | grep .
)

# check_tarball FILE: ends the script unless FILE matches the SHA256SUMS next to it. Sets
# TARBALL_SUM to its checksum.
check_tarball() {
    local file=$1 name=${1##*/} sums wanted
    sums=$(dirname "$file")/SHA256SUMS
    [[ -f $file ]] || fail "$file: no such file"
    [[ $name =~ ^carillon-[0-9A-Za-z._-]+-linux-([0-9a-z_]+)\.tar\.gz$ ]] ||
        fail "$name: not named carillon-VERSION-linux-ARCHITECTURE.tar.gz; keep the name of the release"
    [[ ${BASH_REMATCH[1]} == "$(uname -m)" ]] ||
        fail "$name is for ${BASH_REMATCH[1]}, and this machine is $(uname -m); download the one for $(uname -m)"
    [[ -e $sums ]] || fail "$sums is missing; download it from where $name came from"
    wanted=$(awk -v name="$name" '$2 == name || $2 == "*" name { print $1 }' "$sums")
    [[ -n $wanted ]] || fail "$sums has no checksum of $name; download both from the same release"
    TARBALL_SUM=$(sha256sum <"$file" | cut -d ' ' -f 1)
    [[ $TARBALL_SUM == "$wanted" ]] ||
        fail "$name does not match its checksum in $sums, so it is not used; download both again"
}

# unpack_tarball FILE FOLDER: checks FILE and unpacks it in FOLDER, unless an earlier start did.
# Sets UNPACKED to the folder of the release.
unpack_tarball() {
    local file=$1 folder=$2 name=${1##*/} temporary faults
    check_tarball "$file"
    name=${name%.tar.gz}
    UNPACKED=$folder/$name
    mkdir -p "$folder"
    if [[ $(cat "$folder/$name.sha256" 2>/dev/null) == "$TARBALL_SUM" ]] && check_files "$UNPACKED" >/dev/null; then
        say "$name is unpacked"
        return 0
    fi
    # Left by a killed start.
    rm -rf "$folder"/.unpacking.*
    temporary=$(mktemp -d "$folder/.unpacking.XXXXXXXX")
    if ! tar -x -z --no-same-owner --no-same-permissions -C "$temporary" -f "$file"; then
        faults='it cannot be unpacked'
    elif [[ $(ls -A "$temporary") != "$name" ]]; then
        faults="it holds more than the folder $name"
    else
        faults=$(check_files "$temporary/$name") || true
    fi
    if [[ -n $faults ]]; then
        rm -rf "$temporary"
        fail "$file is not used: $faults"
    fi
    rm -rf "$folder/$name.sha256" "$UNPACKED"
    mv "$temporary/$name" "$UNPACKED"
    rmdir "$temporary"
    printf '%s\n' "$TARBALL_SUM" >"$folder/$name.sha256"
    say "$name"
}
