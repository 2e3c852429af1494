# Carillon · ports.sh
# SPDX-License-Identifier: Apache-2.0
#
# Finds free TCP ports. Source this file.

# Ports that free_port has returned.
GIVEN_PORTS=' '

# port_is_free PORT
port_is_free() {
    local hexadecimal
    printf -v hexadecimal '%04X' "$1"
    # 0A is the state of listening sockets. Without IPv6 there is no tcp6.
    ! { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true; } |
        awk -v port=":$hexadecimal" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }'
}

# free_port VARIABLE [WISH]: sets VARIABLE to WISH, or to a free port below the ephemeral ones.
free_port() {
    local candidate=${2:-0} try
    for ((try = 0; try < 200; try++)); do
        if [[ $candidate -gt 0 && $GIVEN_PORTS != *" $candidate "* ]] && port_is_free "$candidate"; then
            GIVEN_PORTS+="$candidate "
            printf -v "$1" '%s' "$candidate"
            return 0
        fi
        candidate=$((20000 + RANDOM % 12000))
    done
    fail "no free port"
}
