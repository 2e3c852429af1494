# Carillon · messages.sh
# SPDX-License-Identifier: Apache-2.0
#
# Output of scripts. Source this file.

# Headings are bold on a terminal only.
if [[ -t 1 ]]; then
    BOLD=$'\e[1m' DIM=$'\e[2m' PLAIN=$'\e[0m'
else
    BOLD='' DIM='' PLAIN=''
fi

heading() { printf '%s\n' "$BOLD==> $*$PLAIN"; }
say() { printf '    %s\n' "$*"; }
warn() { printf '%s\n' "${0##*/}: $*" >&2; }

# fail MESSAGE...: ends the script with status 1.
fail() {
    warn "$@"
    exit 1
}
