# Carillon · redis.sh
# SPDX-License-Identifier: Apache-2.0
#
# A private Redis on loopback: append-only file, no eviction. Source after processes.sh.

# start_redis NAME FOLDER PORT: starts it with its data in FOLDER and waits until it is ready.
start_redis() {
    mkdir -p "$2"
    start_process "$1" "$2" redis-server --bind 127.0.0.1 --port "$3" --dir "$2" --daemonize no --save '' \
        --appendonly yes --appendfsync everysec --maxmemory-policy noeviction
    wait_until_ready "$1" 'Ready to accept connections' 60
}
