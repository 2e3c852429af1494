# Carillon · environment.sh
# SPDX-License-Identifier: Apache-2.0
#
# Secrets, ports and variables of the stack, kept in $DATA. Source after ports.sh and postgres.sh.

# The variables of $DATA/env, for other programs and for the services.
ENVIRONMENT_NAMES='
    CARILLON_DATA CARILLON_BIN
    REDIS_URL DATABASE_URL GATEWAY_URL GATEWAY_URLS METRICS_URL METRICS_URLS SANDBOX_URL
    AUTH_JWT_SECRET AUTH_ISSUER AUTH_AUDIENCE AUTH_USER_CLAIM SERVICE_TOKEN
    CATALOG APPS WEBPUSH_ORIGINS DEVICES_PER_USER DEFAULT_ZONE
    FCM_CREDENTIALS FCM_ENDPOINT
    APNS_KEY APNS_KEY_ID APNS_TEAM_ID APNS_TOPIC APNS_ENDPOINT
    VAPID_KEY VAPID_SUBJECT WEBPUSH_PRIVATE
    SMTP_URL SMTP_PASSWORD_FILE SMTP_FROM
    PROVIDER_CA PUBLIC_URL
    no_proxy NO_PROXY
    CARILLON_DEFAULTS
'
# The variables of providers. Those of the caller replace those of the sandbox.
PROVIDER_NAMES='
    FCM_CREDENTIALS FCM_ENDPOINT
    APNS_KEY APNS_KEY_ID APNS_TEAM_ID APNS_TOPIC APNS_ENDPOINT
    VAPID_KEY VAPID_SUBJECT WEBPUSH_PRIVATE
    SMTP_URL SMTP_PASSWORD_FILE SMTP_FROM
    PROVIDER_CA PUBLIC_URL
'

# The variables that the caller may set and that name files or folders.
FILE_NAMES='
    CATALOG APPS PUSH_SHAPE FCM_CREDENTIALS APNS_KEY VAPID_KEY SMTP_PASSWORD_FILE WEBHOOK_PROVIDER_SECRET_FILE
    PROVIDER_CA REDIS_CA AUTH_JWKS AUTH_JWKS_CA GATEWAY_TLS_CERT GATEWAY_TLS_KEY
'

# make_paths_absolute: makes the caller's paths absolute, because programs start in other folders.
make_paths_absolute() {
    local name file
    for name in $FILE_NAMES; do
        file=${!name:-}
        [[ -n $file && $name=$file != PUSH_SHAPE=standard && $name=$file != AUTH_JWKS=*://* ]] || continue
        [[ -e $file ]] || fail "$name: no such file or folder: $file (seen from $PWD)"
        export "$name=$(realpath "$file")"
    done
}

# fingerprint TEXT
fingerprint() { printf '%s' "$1" | cksum | cut -d ' ' -f 1; }

# forget_defaults: unsets unchanged variables of an earlier $DATA/env; the caller did not set those.
forget_defaults() {
    local entry name
    for entry in ${CARILLON_DEFAULTS:-}; do
        name=${entry%:*}
        [[ -z ${!name:-} || $(fingerprint "${!name}") != "${entry#*:}" ]] || unset "$name"
    done
    unset CARILLON_DEFAULTS
}

# load_secrets: sets AUTH_JWT_SECRET and POSTGRES_PASSWORD, generated at the first start.
load_secrets() {
    local callers=${AUTH_JWT_SECRET:-}
    if [[ ! -e $DATA/secrets ]]; then
        local jwt password
        jwt=$(openssl rand -hex 32)
        password=$(openssl rand -hex 16)
        printf "AUTH_JWT_SECRET='%s'\nPOSTGRES_PASSWORD='%s'\n" "$jwt" "$password" >"$DATA/secrets.new"
        mv "$DATA/secrets.new" "$DATA/secrets"
    fi
    # shellcheck disable=SC1091
    source "$DATA/secrets"
    [[ -z $callers || $callers == "$AUTH_JWT_SECRET" ]] ||
        warn "AUTH_JWT_SECRET: yours is ignored; to use it, write it to $DATA/secrets and start again"
}

# choose_ports: takes the ports of the last start, or others if they are taken.
choose_ports() {
    local REDIS='' POSTGRES='' SANDBOX='' CONTROL='' SMTP='' METRICS=9091
    # shellcheck disable=SC1091
    [[ ! -e $DATA/ports ]] || source "$DATA/ports"
    # An earlier start may have saved another port because that of the first Redis was taken.
    [[ ! -e $DATA/redis.ports ]] || read -r REDIS _ <"$DATA/redis.ports"
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

# create_database NAME: creates the database in the running cluster, unless it exists.
create_database() {
    local psql
    psql=("$(find_postgres_programs)/psql" -X -q -A -t -h 127.0.0.1 -p "$POSTGRES_PORT" -U carillon -d postgres)
    if [[ $(PGPASSWORD=$POSTGRES_PASSWORD "${psql[@]}" -c "SELECT 1 FROM pg_database WHERE datname = '$1'") != 1 ]]; then
        PGPASSWORD=$POSTGRES_PASSWORD "${psql[@]}" -c "CREATE DATABASE $1"
    fi
}

# apns_fact MEMBER: prints a member of the sandbox's apns.json.
apns_fact() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p" "$DATA/sandbox/apns.json"; }

# given NAME: whether the caller set the variable.
given() { [[ -n ${!1:-} ]]; }

# set_environment: exports the variables of the services. The caller's own providers replace the
# sandbox's; OWN_PROVIDERS lists them.
set_environment() {
    local sandbox="https://127.0.0.1:$SANDBOX_PORT" name
    local -A own=()
    OWN_PROVIDERS=''
    for name in $PROVIDER_NAMES; do ! given "$name" || own[$name]=yes; done
    export CARILLON_DATA=$DATA CARILLON_BIN=$BIN
    export REDIS_URL=${REDIS_URL_OF_KIND:-redis://127.0.0.1:$REDIS_PORT/0}
    export DATABASE_URL="postgresql://carillon:$POSTGRES_PASSWORD@127.0.0.1:$POSTGRES_PORT/carillon"
    export SANDBOX_URL="http://127.0.0.1:$SANDBOX_CONTROL_PORT"
    export AUTH_JWT_SECRET CATALOG=${CATALOG:-$ROOT/deploy/catalog.d}
    if given FCM_CREDENTIALS; then
        OWN_PROVIDERS+=' FCM'
    else
        export FCM_CREDENTIALS=$DATA/sandbox/service-account.json FCM_ENDPOINT=${FCM_ENDPOINT:-$sandbox}
    fi
    if given APNS_KEY; then
        OWN_PROVIDERS+=' APNs'
    else
        export APNS_KEY=$DATA/sandbox/apns.p8 APNS_KEY_ID APNS_TEAM_ID
        export APNS_TOPIC=${APNS_TOPIC:-com.example.app} APNS_ENDPOINT=${APNS_ENDPOINT:-$sandbox}
        APNS_KEY_ID=$(apns_fact key_id)
        APNS_TEAM_ID=$(apns_fact team_id)
    fi
    if given VAPID_KEY; then
        OWN_PROVIDERS+=' Web Push'
    else
        # The sandbox is on this machine.
        export VAPID_KEY=$DATA/sandbox/vapid.pem VAPID_SUBJECT=${VAPID_SUBJECT:-mailto:push@example.com}
        export WEBPUSH_PRIVATE=${WEBPUSH_PRIVATE:-on}
    fi
    if given SMTP_URL; then
        OWN_PROVIDERS+=' e-mail'
    else
        export SMTP_URL="smtp://carillon:pass%3Aword%2F1@127.0.0.1:$SANDBOX_SMTP_PORT"
        export SMTP_FROM=${SMTP_FROM:-Carillon <notices@example.com>}
    fi
    # Outside a toolchain, Swift does not find the program that prints the backtrace of a crash.
    [[ ! -x $BIN/swift-backtrace-static ]] || given SWIFT_BACKTRACE ||
        export SWIFT_BACKTRACE=enable=yes,threads=crashed,images=none,interactive=no,color=no,swift-backtrace=$BIN/swift-backtrace-static
    # The start of links in mail.
    export PUBLIC_URL=${PUBLIC_URL:-http://127.0.0.1:$GATEWAY_PORT}
    # The sandbox's CA together with the CAs of the real providers.
    cat "${PROVIDER_CA:-/etc/ssl/certs/ca-certificates.crt}" "$DATA/sandbox/ca.pem" >"$DATA/authorities.pem" 2>/dev/null || true
    export PROVIDER_CA=$DATA/authorities.pem
    # The caller's proxy cannot reach the stack on this machine. "*" exempts every host if it stands
    # alone, but no host in a list.
    no_proxy=${no_proxy:-${NO_PROXY:-}}
    [[ $no_proxy == '*' || ,$no_proxy, == *,127.0.0.1,* ]] || no_proxy=127.0.0.1${no_proxy:+,$no_proxy}
    export no_proxy NO_PROXY=$no_proxy

    CARILLON_DEFAULTS=''
    for name in $PROVIDER_NAMES AUTH_JWT_SECRET; do
        [[ -n ${own[$name]:-} && $name != PROVIDER_CA ]] || ! given "$name" ||
            CARILLON_DEFAULTS+="${CARILLON_DEFAULTS:+ }$name:$(fingerprint "${!name}")"
    done
    export CARILLON_DEFAULTS
}

# write_environment: writes $DATA/env atomically, readable by its owner only.
write_environment() {
    GATEWAY_URL=${GATEWAY_URLS%% *}
    METRICS_URL=${METRICS_URLS%% *}
    SERVICE_TOKEN=$("$BIN/gateway" token --user upstream --scope service --ttl 30d)
    local name quote="'\\''"
    for name in $ENVIRONMENT_NAMES; do
        # Some are unset, such as the sandbox's if the caller uses a real provider.
        [[ -z ${!name+set} ]] || printf "export %s='%s'\n" "$name" "${!name//\'/$quote}"
    done >"$DATA/env.new"
    chmod 600 "$DATA/env.new"
    mv "$DATA/env.new" "$DATA/env"
}
