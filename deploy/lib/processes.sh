# Carillon · processes.sh
# SPDX-License-Identifier: Apache-2.0
#
# Starts, watches and stops processes. Ids are in $DATA/pids, output in $DATA/logs. Source after
# messages.sh.

# Names of started processes, in order.
STARTED=()
# Folder and command of each, quoted for the shell; the key is the name.
declare -A COMMANDS=()

# process_birth PID: prints its start in clock ticks since boot, to tell apart reuses of an id.
process_birth() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name in brackets may contain anything, so count from the last bracket.
    awk '{ print $20 }' <<<"${stat##*) }"
}

# process_state PID: prints the letter of its state; nothing if it has ended.
process_state() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    stat=${stat##*) }
    printf '%s' "${stat%% *}"
}

# is_running NAME: whether the process in its pid file still runs, and is the one that we started.
is_running() {
    local pid birth
    pid=$(cat "$DATA/pids/$1.pid" 2>/dev/null) && birth=$(cat "$DATA/pids/.$1.birth" 2>/dev/null) || return 1
    [[ $(process_birth "$pid") == "$birth" && $(process_state "$pid") != Z ]]
}

# signal_process SIGNAL NAME
signal_process() {
    ! is_running "$2" || kill -s "$1" "$(cat "$DATA/pids/$2.pid")" 2>/dev/null || true
}

forget_process() { rm -f "$DATA/pids/$1.pid" "$DATA/pids/.$1.birth"; }

# note_process NAME PID
note_process() {
    process_birth "$2" >"$DATA/pids/.$1.birth" || true
    printf '%s\n' "$2" >"$DATA/pids/$1.pid"
}

# start_process NAME FOLDER COMMAND...: starts COMMAND in FOLDER, in its own session. Ctrl-C then
# reaches only this script, which stops everything in order.
start_process() {
    local name=$1 folder=$2
    shift 2
    [[ ! -e $DATA/logs/$name.log ]] || mv -f "$DATA/logs/$name.log" "$DATA/logs/$name.log.1"
    (cd "$folder" && exec setsid -- "$@") </dev/null >"$DATA/logs/$name.log" 2>&1 9>&- &
    note_process "$name" $!
    printf -v "COMMANDS[$name]" '%q ' "$folder" "$@"
    [[ " ${STARTED[*]} " == *" $name "* ]] || STARTED+=("$name")
}

# Exit code of a program with a faulty configuration.
FAULTY_CONFIGURATION=78

# keep_running: reports processes that ended and restarts them, after 1 s, 2 s and so on up to 30 s;
# after 1 s if they ran for a minute. Returns when no process is left.
keep_running() {
    local name pid status pause running
    local -A next=() since=() due=()
    for name in "${STARTED[@]}"; do since[$name]=$SECONDS; done
    while :; do
        # Poll, because `wait -n` may report only one of two processes that end together.
        sleep 1 9>&- &
        wait $! || true
        running=''
        for name in "${STARTED[@]}"; do
            if [[ -n ${due[$name]:-} ]]; then
                running=yes
                ((SECONDS >= due[$name])) || continue
                unset "due[$name]"
                say "restarting $name"
                eval "start_process $name ${COMMANDS[$name]}"
                since[$name]=$SECONDS
                continue
            fi
            { read -r pid <"$DATA/pids/$name.pid"; } 2>/dev/null || continue
            running=yes
            ! kill -0 "$pid" 2>/dev/null || continue
            status=0
            wait "$pid" 2>/dev/null || status=$?
            show_log "$name"
            forget_process "$name"
            if ((status == FAULTY_CONFIGURATION)); then
                warn "$name ended with status $status: faulty configuration; it will not be restarted"
                continue
            fi
            pause=${next[$name]:-1}
            ((SECONDS - since[$name] < 60)) || pause=1
            next[$name]=$((pause * 2 < 30 ? pause * 2 : 30))
            due[$name]=$((SECONDS + pause))
            warn "$name ended with status $status; it will be restarted in $pause s"
        done
        [[ -n $running ]] || return 0
    done
}

# wait_until_ready NAME PATTERN SECONDS: returns when a line of its log matches PATTERN.
wait_until_ready() {
    local name=$1 pattern=$2 tries=$(($3 * 20))
    while ! grep -q -- "$pattern" "$DATA/logs/$name.log" 2>/dev/null; do
        if ! is_running "$name"; then
            show_log "$name"
            warn "$name ended before it was ready"
            return 1
        fi
        if ((--tries <= 0)); then
            show_log "$name"
            warn "$name was not ready within $3 seconds"
            return 1
        fi
        sleep 0.05
    done
}

# show_log NAME: prints the end of its log.
show_log() {
    warn "the end of $DATA/logs/$1.log:"
    tail -n 20 "$DATA/logs/$1.log" 2>/dev/null | sed 's/^/    /' >&2
}

# stop_processes SIGNAL SECONDS NAME...: signals all, waits, and kills those that run after SECONDS.
stop_processes() {
    local signal=$1 tries=$(($2 * 20)) name running
    shift 2
    for name in "$@"; do signal_process "$signal" "$name"; done
    while :; do
        running=()
        for name in "$@"; do ! is_running "$name" || running+=("$name"); done
        [[ ${#running[@]} -gt 0 ]] || break
        if [[ -n ${STOP_AT_ONCE:-} ]] || ((tries-- <= 0)); then
            warn "killing ${running[*]}"
            for name in "${running[@]}"; do signal_process KILL "$name"; done
            break
        fi
        sleep 0.05
    done
    for name in "$@"; do
        # Reap it here, or the shell prints its status.
        wait "$(cat "$DATA/pids/$name.pid" 2>/dev/null)" 2>/dev/null || true
        forget_process "$name"
    done
}
