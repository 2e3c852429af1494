# Carillon · postgres.sh
# SPDX-License-Identifier: Apache-2.0
#
# A private PostgreSQL cluster on loopback, without a socket file. Source after processes.sh.

# find_postgres_programs [CLUSTER]: prints the folder with the programs of the newest PostgreSQL, or
# of the one that made the cluster in folder CLUSTER. Debian keeps that folder out of PATH.
find_postgres_programs() {
    local folder wanted=''
    [[ ! -e ${1:-}/PG_VERSION ]] || wanted=$(<"$1/PG_VERSION")
    for folder in $(compgen -G '/usr/lib/postgresql/*/bin' | sort -t / -k 5 -V -r) ${PATH//:/ }; do
        [[ -x $folder/initdb && -x $folder/postgres ]] || continue
        # As in "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)".
        if [[ -z $wanted || $("$folder/postgres" --version) =~ \)\ "$wanted"([^0-9]|$) ]]; then
            printf '%s\n' "$folder"
            return 0
        fi
    done
    return 1
}

# choose_postgres_user: sets AS_USER to a prefix that drops root, which PostgreSQL refuses.
choose_postgres_user() {
    AS_USER=()
    [[ $EUID -eq 0 ]] || return 0
    local user
    for user in postgres nobody; do
        if id "$user" >/dev/null 2>&1; then
            AS_USER=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups --)
            POSTGRES_OWNER=$user
            return 0
        fi
    done
    fail "PostgreSQL refuses to run as root; create a user postgres or nobody"
}

# The server's user may not be allowed to enter a parent folder such as /root. So open the folder
# before changing the user, and use the descriptor.
OPEN_FOLDER=(bash -c 'exec 8<"$0" && exec "$@"')
OPENED_FOLDER=/proc/self/fd/8

# create_postgres FOLDER PASSWORD: creates a cluster with superuser `carillon` in the empty FOLDER.
create_postgres() {
    local folder=$1 secret
    mkdir -p "$folder"
    chmod 700 "$folder"
    secret=$(mktemp)
    printf '%s\n' "$2" >"$secret"
    [[ ${#AS_USER[@]} -eq 0 ]] || chown "$POSTGRES_OWNER" "$folder" "$secret"
    local status=0
    (cd / && "${OPEN_FOLDER[@]}" "$folder" "${AS_USER[@]}" "$(find_postgres_programs)/initdb" -D "$OPENED_FOLDER" \
        -U carillon --pwfile="$secret" --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 --no-instructions) \
        >"$DATA/logs/initdb.log" 2>&1 || status=$?
    rm -f "$secret"
    [[ $status -eq 0 ]] || {
        show_log initdb
        return 1
    }
}

# start_postgres NAME FOLDER PORT [SETTING=VALUE...]: starts the cluster and waits for it.
start_postgres() {
    local name=$1 folder=$2 port=$3 setting settings=() programs
    shift 3
    programs=$(find_postgres_programs "$folder") ||
        fail "PostgreSQL $(cat "$folder/PG_VERSION") made $folder and is gone; install that version again"
    for setting in "listen_addresses=127.0.0.1" "port=$port" "unix_socket_directories=" "lc_messages=C" "$@"; do
        settings+=(-c "$setting")
    done
    # The lock file of a killed server blocks the next one if its id is a zombie or another process.
    local holder
    if holder=$(head -n 1 "$folder/postmaster.pid" 2>/dev/null) &&
        [[ $(cat "/proc/$holder/comm" 2>/dev/null) != postgres || $(process_state "$holder") == Z ]]; then
        rm -f "$folder/postmaster.pid"
    fi
    local try
    for try in 1 2 3 4 5; do
        start_process "$name" / "${OPEN_FOLDER[@]}" "$folder" "${AS_USER[@]}" "$programs/postgres" \
            -D "$OPENED_FOLDER" "${settings[@]}"
        ! wait_until_ready "$name" 'ready to accept connections' 120 || return 0
        # Child processes of a killed server keep its shared memory for a moment.
        grep -q 'shared memory block' "$DATA/logs/$name.log" || return 1
        sleep 1
    done
    return 1
}
