# Carillon · deployment.sh
# SPDX-License-Identifier: Apache-2.0
#
# Has other programs check the files that operators deploy: those programs that the machine has. Sourced, after messages.sh.

# has_checker PROGRAM WHAT: whether it is there; says so if not.
has_checker() {
    command -v "$1" >/dev/null && return 0
    warn "SKIPPED: $1 is not installed; $2 is not checked by it"
    return 1
}

# quietly WHAT COMMAND...: runs it and shows what it says only if it fails, which ends the script.
quietly() {
    local what=$1 output
    shift
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        fail "$what is at fault"
    }
    say "$what"
}

# The proxies' examples, with a certificate that is made for the moment.
check_proxies() {
    local folder=$1
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=notify.example.com \
        -keyout "$folder/privkey.pem" -out "$folder/fullchain.pem" 2>/dev/null
    cat "$folder/fullchain.pem" "$folder/privkey.pem" >"$folder/bundle.pem"
    if has_checker nginx deploy/proxy/nginx.conf; then
        sed -e "s|/etc/carillon/tls|$folder|; s|/run/nginx.pid|$folder/nginx.pid|" \
            -e "s|/var/log/nginx/error.log|stderr|; s|worker_rlimit_nofile .*||; s|262144|1024|" \
            deploy/proxy/nginx.conf >"$folder/nginx.conf"
        quietly deploy/proxy/nginx.conf nginx -t -q -c "$folder/nginx.conf" -e stderr
    fi
    if has_checker haproxy deploy/proxy/haproxy.cfg; then
        sed -e "s|/etc/carillon/tls|$folder|; s|maxconn 200000|maxconn 1000|" deploy/proxy/haproxy.cfg \
            >"$folder/haproxy.cfg"
        quietly deploy/proxy/haproxy.cfg haproxy -c -q -f "$folder/haproxy.cfg"
    fi
    if has_checker caddy deploy/proxy/Caddyfile; then
        quietly deploy/proxy/Caddyfile caddy validate --adapter caddyfile --config deploy/proxy/Caddyfile
    fi
}

# The units, with a program that is there in the place of ours.
check_units() {
    local folder=$1 service
    has_checker systemd-analyze deploy/systemd || return 0
    sed 's|^ExecStart=.*|ExecStart=/bin/true|; s|^User=.*|User=nobody|; s|^Group=.*|Group=nogroup|' \
        deploy/systemd/carillon-gateway@.service >"$folder/carillon-gateway@.service"
    sed 's|^ExecStart=.*|ExecStart=/bin/true|; s|^User=.*|User=nobody|; s|^Group=.*|Group=nogroup|' \
        deploy/systemd/carillon-dispatcher@.service >"$folder/carillon-dispatcher@.service"
    cp deploy/systemd/carillon.target "$folder/"
    for service in gateway@8080 dispatcher@9091; do
        cp "$folder/carillon-${service%@*}@.service" "$folder/carillon-$service.service"
        quietly "deploy/systemd/carillon-${service%@*}@.service" systemd-analyze verify --man=no \
            "$folder/carillon-$service.service"
        # What can still be done from inside, on systemd's scale from 0 to 10.
        quietly "its exposure" systemd-analyze security --offline=true --threshold=20 --no-pager \
            "$folder/carillon-$service.service"
    done
}

# check_deployment FOLDER: checks all of it, with FOLDER for what is made meanwhile.
check_deployment() {
    local folder=$1 kustomization
    mkdir -p "$folder"
    check_proxies "$folder"
    check_units "$folder"
    if has_checker promtool deploy/prometheus; then
        quietly deploy/prometheus/prometheus.yaml promtool check config deploy/prometheus/prometheus.yaml
        quietly deploy/prometheus/carillon.rules.test.yaml promtool test rules \
            deploy/prometheus/carillon.rules.test.yaml
    fi
    if has_checker kubectl deploy/kubernetes; then
        for kustomization in deploy/kubernetes deploy/kubernetes/httproute deploy/kubernetes/keda \
            deploy/kubernetes/monitoring; do
            quietly "$kustomization" kubectl kustomize "$kustomization"
        done
        # With the patches that an operator takes in.
        cp -r deploy/kubernetes/keda "$folder/keda"
        sed -i 's/^# \(patches:\)$/\1/; s/^#\(   - {path:.*\)/ \1/' "$folder/keda/kustomization.yaml"
        quietly "deploy/kubernetes/keda/providers" kubectl kustomize "$folder/keda"
    fi
    # The client alone reads the file; no engine is asked.
    if docker compose version >/dev/null 2>&1; then
        quietly deploy/compose.yaml env AUTH_JWT_SECRET=x POSTGRES_PASSWORD=x \
            docker compose -f deploy/compose.yaml config --quiet
    else
        warn "SKIPPED: docker compose is not installed; deploy/compose.yaml is not checked by it"
    fi
}
