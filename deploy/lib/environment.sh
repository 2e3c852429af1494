# Carillon · environment.sh
# SPDX-License-Identifier: Apache-2.0
#
# The secrets, ports and variables of what deploy/up starts, kept under $DATA. Sourced, after ports.sh and postgres.sh.

# What $DATA/env holds for other programs, and what the services themselves read.
ENVIRONMENT_NAMES='
    CARILLON_DATA CARILLON_BIN
    REDIS_URL DATABASE_URL GATEWAY_URL GATEWAY_URLS METRICS_URL METRICS_URLS SANDBOX_URL
    AUTH_JWT_SECRET SERVICE_TOKEN CATALOG
    FCM_CREDENTIALS FCM_ENDPOINT
    APNS_KEY APNS_KEY_ID APNS_TEAM_ID APNS_TOPIC APNS_ENDPOINT
    VAPID_KEY VAPID_SUBJECT WEBPUSH_PRIVATE
    SMTP_URL SMTP_FROM
    PROVIDER_CA PUBLIC_URL
'

# load_secrets: sets AUTH_JWT_SECRET and POSTGRES_PASSWORD, drawn at the first start.
load_secrets() {
    if [[ ! -e $DATA/secrets ]]; then
        local jwt password
        jwt=$(openssl rand -hex 32)
        password=$(openssl rand -hex 16)
        printf "AUTH_JWT_SECRET='%s'\nPOSTGRES_PASSWORD='%s'\n" "$jwt" "$password" >"$DATA/secrets.new"
        mv "$DATA/secrets.new" "$DATA/secrets"
    fi
    # shellcheck disable=SC1091
    source "$DATA/secrets"
}

# choose_ports: the ports of the last start where they are free, others where not.
choose_ports() {
    local REDIS='' POSTGRES='' SANDBOX='' CONTROL='' SMTP='' METRICS=9091
    # shellcheck disable=SC1091
    [[ ! -e $DATA/ports ]] || source "$DATA/ports"
    if [[ $PORT == 0 ]]; then
        free_port GATEWAY_PORT
    elif [[ -n $PORT ]]; then
        port_is_free "$PORT" || fail "port $PORT is taken"
        GATEWAY_PORT=$PORT
        GIVEN_PORTS+="$PORT "
    else
        free_port GATEWAY_PORT 8080
        [[ $GATEWAY_PORT == 8080 ]] || say "port 8080 is taken"
    fi
    free_port REDIS_PORT "${REDIS:-0}"
    free_port POSTGRES_PORT "${POSTGRES:-0}"
    free_port SANDBOX_PORT "${SANDBOX:-0}"
    free_port SANDBOX_CONTROL_PORT "${CONTROL:-0}"
    free_port SANDBOX_SMTP_PORT "${SMTP:-0}"
    free_port METRICS_PORT "$METRICS"
    printf 'REDIS=%s\nPOSTGRES=%s\nSANDBOX=%s\nCONTROL=%s\nSMTP=%s\nMETRICS=%s\n' \
        "$REDIS_PORT" "$POSTGRES_PORT" "$SANDBOX_PORT" "$SANDBOX_CONTROL_PORT" "$SANDBOX_SMTP_PORT" "$METRICS_PORT" \
        >"$DATA/ports"
}

# create_database NAME: makes the database in the running cluster unless it is there.
create_database() {
    local psql
    psql=("$(find_postgres_programs)/psql" -X -q -A -t -h 127.0.0.1 -p "$POSTGRES_PORT" -U carillon -d postgres)
    if [[ $(PGPASSWORD=$POSTGRES_PASSWORD "${psql[@]}" -c "SELECT 1 FROM pg_database WHERE datname = '$1'") != 1 ]]; then
        PGPASSWORD=$POSTGRES_PASSWORD "${psql[@]}" -c "CREATE DATABASE $1"
    fi
}

# apns_fact MEMBER: a member of the sandbox's apns.json.
apns_fact() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p" "$DATA/sandbox/apns.json"; }

# set_environment: exports what the services read.
set_environment() {
    local sandbox="https://127.0.0.1:$SANDBOX_PORT"
    export CARILLON_DATA=$DATA CARILLON_BIN=$BIN
    export REDIS_URL="redis://127.0.0.1:$REDIS_PORT/0"
    export DATABASE_URL="postgresql://carillon:$POSTGRES_PASSWORD@127.0.0.1:$POSTGRES_PORT/carillon"
    export SANDBOX_URL="http://127.0.0.1:$SANDBOX_CONTROL_PORT"
    export AUTH_JWT_SECRET CATALOG=${CATALOG:-$ROOT/deploy/catalog.d}
    export FCM_CREDENTIALS=$DATA/sandbox/service-account.json FCM_ENDPOINT=$sandbox
    export APNS_KEY=$DATA/sandbox/apns.p8 APNS_KEY_ID APNS_TEAM_ID APNS_TOPIC=com.example.app APNS_ENDPOINT=$sandbox
    APNS_KEY_ID=$(apns_fact key_id)
    APNS_TEAM_ID=$(apns_fact team_id)
    # The sandbox is on this machine.
    export VAPID_KEY=$DATA/sandbox/vapid.pem VAPID_SUBJECT=mailto:push@example.com WEBPUSH_PRIVATE=on
    export SMTP_URL="smtp://carillon:pass%3Aword%2F1@127.0.0.1:$SANDBOX_SMTP_PORT"
    export SMTP_FROM='Carillon <notices@example.com>'
    # Where the links of mail lead.
    export PUBLIC_URL="http://127.0.0.1:$GATEWAY_PORT"
    export PROVIDER_CA=$DATA/sandbox/ca.pem
}

# write_environment: writes $DATA/env, whole or not at all, readable by its owner only.
write_environment() {
    GATEWAY_URL=${GATEWAY_URLS%% *}
    METRICS_URL=${METRICS_URLS%% *}
    SERVICE_TOKEN=$("$BIN/gateway" token --user upstream --scope service --ttl 30d)
    local name quote="'\\''"
    for name in $ENVIRONMENT_NAMES; do
        printf "export %s='%s'\n" "$name" "${!name//\'/$quote}"
    done >"$DATA/env.new"
    chmod 600 "$DATA/env.new"
    mv "$DATA/env.new" "$DATA/env"
}
