# Carillon · version.sh
# SPDX-License-Identifier: Apache-2.0
#
# Reads and sets the version of a checkout. Source after messages.sh.

# Each line is a file and the text before its version; the first has the version of the programs. A
# file with a question mark may be missing.
CODE_VERSIONS='
    Sources/Shared/Operations/Release.swift static let version = "
    clients/python/src/carillon/version.py __version__ = "
    clients/javascript/package.json "version": "
    clients/javascript/index.js export const version = "
    clients/go/job.go const Version = "
    ?clients/web/package.json "version": "
    ?clients/web/index.js export const version = "
'
# Names of images and tarballs, which have no development versions.
RELEASE_VERSIONS='
    deploy/compose.yaml CARILLON_VERSION:-
    deploy/kubernetes/kustomization.yaml newTag: 
    deploy/docker/Dockerfile carillon:
    docs/deploying.md carillon[-:]
    README.md carillon-
    ?deploy/helm/Chart.yaml ^version: "?
    ?deploy/helm/Chart.yaml ^appVersion: "?
'
NUMBERS='[0-9]+\.[0-9]+\.[0-9]+'

# read_version CHECKOUT: prints what `gateway --version` prints after a build.
read_version() {
    local file text
    read -r file text < <(sed -n 2p <<<"$CODE_VERSIONS")
    sed -nE "s/.*$text($NUMBERS(-dev)?)\".*/\1/p" "$1/$file" | grep . || fail "$file has no version"
}

# is_release_version TEXT: whether it is a version for a release.
is_release_version() { [[ $1 =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]]; }

# is_newer VERSION OTHER: whether VERSION comes after OTHER; a release comes after its `-dev`.
is_newer() {
    [[ $1 != "$2" ]] || return 1
    # `sort -V` puts a tilde before the end of a text.
    [[ $(printf '%s\n' "${1/-/\~}" "${2/-/\~}" | sort -V | tail -n 1) == "${1/-/\~}" ]]
}

# set_versions CHECKOUT LIST VERSION: sets the version in the files of a list above.
set_versions() {
    local line file text
    while IFS= read -r line; do
        [[ -n $line ]] || continue
        file=${line#    } text=${file#* } file=${file%% *}
        [[ $file != \?* || -e $1/${file#\?} ]] || continue
        file=${file#\?}
        grep -qE -- "$text$NUMBERS" "$1/$file" ||
            fail "$file has no version after ‘$text’; correct the list in deploy/lib/version.sh"
        sed -i -E "s|($text)$NUMBERS(-dev)?|\1$3|g" "$1/$file"
    done <<<"$2"
}

# close_changes CHECKOUT VERSION DATE: gives the unreleased changes of the changelog their version.
close_changes() { sed -i "s/^## Unreleased\$/## $2 – $3/" "$1/CHANGELOG.md"; }

# open_changes CHECKOUT: adds an empty section for the next release.
open_changes() { sed -i '0,/^## /s//## Unreleased\n\n&/' "$1/CHANGELOG.md"; }

# print_changes CHECKOUT HEADING: prints the section whose heading begins with HEADING, without it.
print_changes() {
    awk -v heading="## $2" '/^## / { on = index($0 " ", heading " ") == 1; next } on' "$1/CHANGELOG.md" |
        sed -e '/./,$!d'
}
