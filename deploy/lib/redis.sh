# Carillon · redis.sh
# SPDX-License-Identifier: Apache-2.0
#
# Private Redis servers on loopback: append-only file, no eviction. Source after processes.sh and
# ports.sh. Each has a configuration file in its folder, because Sentinels and clusters change it.

# start_redis NAME FOLDER PORT [SETTING=VALUE...]: starts it with its data in FOLDER and waits until
# it is ready. The settings apply only at its first start.
start_redis() {
    local name=$1 folder=$2 port=$3 setting
    shift 3
    mkdir -p "$folder"
    if [[ ! -e $folder/redis.conf ]]; then
        {
            printf 'bind 127.0.0.1\nsave ""\nappendonly yes\nappendfsync everysec\n'
            # With the default of 64 MB, a busy server rewrites its file every few seconds.
            printf 'maxmemory-policy noeviction\nauto-aof-rewrite-min-size 512mb\n'
            for setting in "$@"; do printf '%s %s\n' "${setting%%=*}" "${setting#*=}"; done
        } >"$folder/redis.conf"
    fi
    start_process "$name" "$folder" redis-server "$folder/redis.conf" --dir "$folder" --port "$port" \
        --daemonize no
    wait_until_ready "$name" 'Ready to accept connections' 60
}

# start_sentinels FOLDER PORT...: starts a Sentinel on each port. They watch the master on
# REDIS_PORT under the name `carillon`.
start_sentinels() {
    local folder=$1 port number=0
    shift
    for port in "$@"; do
        number=$((number + 1))
        mkdir -p "$folder-$number"
        if [[ ! -e $folder-$number/sentinel.conf ]]; then
            printf '%s\n' "bind 127.0.0.1" \
                "sentinel monitor carillon 127.0.0.1 $REDIS_PORT 2" \
                "sentinel down-after-milliseconds carillon 3000" "sentinel failover-timeout carillon 10000" \
                >"$folder-$number/sentinel.conf"
        fi
        start_process "sentinel-$number" "$folder-$number" redis-server "$folder-$number/sentinel.conf" --sentinel \
            --dir "$folder-$number" --port "$port"
        wait_until_ready "sentinel-$number" 'Sentinel ID is' 60
    done
}

# start_cluster PORT...: starts six servers on the first six ports, with the other ports for their
# bus, and makes them a cluster. Without $DATA/env no start has finished, so half a cluster may
# exist.
start_cluster() {
    local ports=("$@") number
    [[ -e $DATA/env ]] || rm -rf "$DATA"/redis-[1-6]
    for number in 1 2 3 4 5 6; do
        start_redis "redis-$number" "$DATA/redis-$number" "${ports[number - 1]}" cluster-enabled=yes \
            "cluster-port=${ports[number + 5]}" cluster-node-timeout=3000 cluster-require-full-coverage=no
    done
    make_cluster "${ports[@]:0:6}"
}

# make_cluster PORT...: makes a cluster of three masters with a replica each, unless it is one.
make_cluster() {
    local port servers=()
    for port in "$@"; do servers+=("127.0.0.1:$port"); done
    if ! redis-cli -p "$1" CLUSTER INFO | grep -q '^cluster_slots_assigned:16384'; then
        redis-cli --cluster create "${servers[@]}" --cluster-replicas 1 --cluster-yes >"$DATA/logs/cluster.log" 2>&1 ||
            { show_log cluster && fail "the cluster could not be made; remove $DATA to start over"; }
    fi
    for port in "$@"; do
        for ((try = 0; try < 300; try++)); do
            [[ $(redis-cli -p "$port" CLUSTER INFO) != *cluster_state:ok*cluster_slots_ok:16384* ]] || continue 2
            sleep 0.1
        done
        fail "the Redis on port $port sees no whole cluster; remove $DATA to start over"
    done
}
