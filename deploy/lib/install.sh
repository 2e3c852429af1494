# Carillon · install.sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs missing packages without starting their services, and builds. Source after messages.sh.

# Each line of these lists: a Debian package and evidence that it is installed.

# Needed to build from source. Swift links the first few.
BUILDING_PACKAGES='
    binutils              command:ld
    g++                   glob:/usr/include/c++/*/vector
    libncurses6           library:libncurses.so.6
    libsqlite3-0          library:libsqlite3.so.0
    pkg-config            command:pkg-config
    libhiredis-dev        file:/usr/include/hiredis/hiredis.h
    libpq-dev             file:/usr/include/postgresql/libpq-fe.h
    libcurl4-openssl-dev  header:curl/curl.h
    libssl-dev            file:/usr/include/openssl/core_names.h
    zlib1g-dev            file:/usr/include/zlib.h
'
# Also needed to collect the programs of a build for other machines.
PACKAGING_PACKAGES='
    chrpath               command:chrpath
'
# The libraries that built programs link. The packages for building bring them.
LIBRARY_PACKAGES='
    libhiredis0.14        library:libhiredis.so.0.14
    libpq5                library:libpq.so.5
    libcurl4              library:libcurl.so.4
    libssl3               library:libcrypto.so.3
    zlib1g                library:libz.so.1
    libstdc++6            library:libstdc++.so.6
    libgcc-s1             library:libgcc_s.so.1
'
# Needed to run the programs with a Redis and a PostgreSQL of their own.
RUNNING_PACKAGES='
    redis-server          command:redis-server
    postgresql            postgres:
    ca-certificates       file:/etc/ssl/certs/ca-certificates.crt
    tzdata                file:/usr/share/zoneinfo/Europe/Berlin
    openssl               command:openssl
    curl                  command:curl
'
# The lists for install_missing. Scripts that build nothing set others.
NEEDED_PACKAGES=$BUILDING_PACKAGES$RUNNING_PACKAGES

# is_present EVIDENCE: whether the evidence of a line of the lists exists.
is_present() {
    local kind=${1%%:*} name=${1#*:}
    case $kind in
        command) command -v "$name" >/dev/null ;;
        file) [[ -e $name ]] ;;
        glob) compgen -G "$name" >/dev/null ;;
        header) [[ -e /usr/include/$name ]] || compgen -G "/usr/include/*/$name" >/dev/null ;;
        library) compgen -G "/usr/lib/*/$name" >/dev/null || compgen -G "/lib/*/$name" >/dev/null ;;
        postgres) find_postgres_programs >/dev/null ;;
    esac
}

# install_missing [PACKAGE:EVIDENCE...]: installs what is missing of the list and of the arguments.
install_missing() {
    local package evidence missing=()
    while read -r package evidence; do
        [[ -z $package ]] || is_present "$evidence" || missing+=("$package")
    done <<<"$NEEDED_PACKAGES"
    for evidence in "$@"; do
        is_present "${evidence#*:}" || missing+=("${evidence%%:*}")
    done
    # If a killed run left its policy, go on, to remove it.
    [[ ${#missing[@]} -gt 0 ]] || grep -qs "Made by carillon" /usr/sbin/policy-rc.d || return 0

    heading "Installing ${missing[*]}"
    command -v apt-get >/dev/null || fail "this machine has no apt-get; install the equivalents of: ${missing[*]}"
    local as_root=() name proxies=''
    if [[ $(id -u) != 0 ]]; then
        # A plain apt-get would also start the servers.
        command -v sudo >/dev/null || fail "run as root (su -): bash -c 'source \"$(realpath "${BASH_SOURCE[0]}")\";" \
            "bash -s -- ${missing[*]} <<<\"\$INSTALL_SCRIPT\"'"
        as_root=(sudo)
    fi
    # sudo drops the proxy that apt-get may need. Its URL may hold a password, so it goes to stdin.
    for name in http_proxy https_proxy no_proxy; do
        [[ -z ${!name:-} ]] || proxies+="export $name=${!name@Q}"$'\n'
    done
    "${as_root[@]}" bash -s -- "${missing[@]}" <<<"$proxies$INSTALL_SCRIPT" ||
        fail "apt-get could not install ${missing[*]}"
}

# Runs as root. Server packages must not create or start a server: during the installation a Debian
# policy forbids starts, and PostgreSQL's configuration forbids a first cluster. Both are restored.
# shellcheck disable=SC2016
INSTALL_SCRIPT='
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.conf
original=$cluster.before-carillon
made_policy=
restore() {
    [[ -z $made_policy ]] || rm -f "$policy"
    [[ ! -e $original ]] || mv -f "$original" "$cluster"
}
# One run at a time. The next run removes both files if this one is killed.
exec 8>/run/carillon-install.lock
flock 8
trap restore EXIT
install=(apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold)
if [[ ! -e $policy ]] || grep -q "Made by carillon" "$policy"; then
    made_policy=yes
    printf "#!/bin/sh\n# Made by carillon.\nexit 101\n" >"$policy"
    chmod 755 "$policy"
fi
apt-get update -q
for package in "$@"; do
    [[ $package == postgresql ]] || continue
    "${install[@]}" postgresql-common
    if [[ -e $cluster ]]; then
        [[ -e $original ]] || cp -a "$cluster" "$original"
        printf "\ncreate_main_cluster = false\n" >>"$cluster"
    fi
done
"${install[@]}" "$@"
# They must not start at boot either.
if [[ -d /run/systemd/system ]]; then
    for package in "$@"; do
        case $package in redis-server | postgresql | nginx | haproxy) systemctl disable --quiet "$package.service" || true ;; esac
    done
fi
'

# check_swift: ends the script unless a suitable Swift is installed.
check_swift() {
    command -v swift >/dev/null || fail "swift is not in PATH; see https://www.swift.org/install/linux/"
    local version
    version=$(swift --version 2>&1) || fail "swift does not start: $version"
    version=$(sed -n 's/^.*Swift version \([0-9]*\.[0-9]*\).*/\1/p' <<<"$version" | head -n 1)
    [[ -n $version ]] || fail "swift --version prints no version"
    [[ ${version%%.*} -gt 6 || (${version%%.*} -eq 6 && ${version#*.} -ge 2) ]] ||
        fail "Swift $version is too old; install 6.2 or newer"
    say "Swift $version"
}

# The time of a clean release build, in minutes of one core.
BUILD_CORE_MINUTES=18

# build_programs CONFIGURATION: builds all programs of $ROOT in one command, which keeps all cores
# busy, and shows progress. For a first build it also estimates the time. CARILLON_BUILD=programs
# leaves out benchmarks and tests.
build_programs() {
    local began=$SECONDS shown=$SECONDS total=0 left line
    if [[ ! -x $ROOT/.build/$1/gateway ]]; then
        total=$((BUILD_CORE_MINUTES * 60 / $(nproc)))
        say "the first build takes about $(((total + 59) / 60)) minutes on $(nproc) cores"
    fi
    (cd "$ROOT" && exec swift build -c "$1" 9>&-) | while IFS= read -r line; do
        if [[ $line != \[+([0-9])/+([0-9])\]* ]]; then
            printf '%s\n' "$line"
            continue
        fi
        ((SECONDS - shown >= 15)) || continue
        shown=$SECONDS left=$((total - SECONDS + began))
        if ((left > 60)); then
            say "${line%%]*}] $(((left + 59) / 60)) minutes left"
        else
            say "${line%%]*}]"
        fi
    done
}
