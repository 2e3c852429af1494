# Carillon · deployment.sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks deployment files with the tools that are installed. Source after messages.sh.

# has_checker PROGRAM WHAT: whether PROGRAM is installed; warns if not.
has_checker() {
    command -v "$1" >/dev/null && return 0
    warn "SKIPPED: $1 is not installed, so it does not check $2"
    return 1
}

# quietly WHAT COMMAND...: runs COMMAND; on failure shows its output and ends the script.
quietly() {
    local what=$1 output
    shift
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        fail "$what is faulty"
    }
    say "$what"
}

# check_proxies FOLDER: checks the example configurations, with a temporary certificate.
check_proxies() {
    local folder=$1
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=notify.example.com \
        -keyout "$folder/privkey.pem" -out "$folder/fullchain.pem" 2>/dev/null
    cat "$folder/fullchain.pem" "$folder/privkey.pem" >"$folder/bundle.pem"
    if has_checker nginx deploy/proxy/nginx.conf; then
        sed -e "s|/etc/carillon/tls|$folder|; s|/run/nginx.pid|$folder/nginx.pid|" \
            -e "s|/var/log/nginx/error.log|stderr|; s|/var/log/nginx/access.log|/dev/stderr|; s|worker_rlimit_nofile .*||; s|262144|1024|" \
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

# check_units FOLDER: checks the units, with another installed program in place of ours.
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
        # The unit's exposure must be at most 2.0 on systemd's scale from 0 to 10.
        quietly "exposure of $service" systemd-analyze security --offline=true --threshold=20 --no-pager \
            "$folder/carillon-$service.service"
    done
}

# check_chart: checks the Helm chart with Helm, which is a package of the clients' environment.
check_chart() {
    local python=${CARILLON_TEST_PYTHON:-python3}
    has_checker kubectl deploy/helm || return 0
    if ! "$python" -c 'import helm_python, yaml' 2>/dev/null; then
        warn "SKIPPED: $python has no helm-python-sdk, so it does not check deploy/helm"
        return 0
    fi
    quietly deploy/helm "$python" -B -m unittest discover --quiet deploy/kubernetes/chart
}

# check_deployment FOLDER: runs all checks, with FOLDER for temporary files.
check_deployment() {
    local folder=$1 kustomization size
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
        # Each size is a component of the manifests.
        for size in one cluster fleet; do
            cp -r deploy/kubernetes "$folder/$size"
            echo "components: [sizes/$size]" >>"$folder/$size/kustomization.yaml"
            quietly "deploy/kubernetes/sizes/$size" kubectl kustomize "$folder/$size"
        done
    fi
    check_chart
    # `docker compose config` needs no running engine.
    if docker compose version >/dev/null 2>&1; then
        quietly deploy/compose.yaml env AUTH_JWT_SECRET=x POSTGRES_PASSWORD=x \
            docker compose -f deploy/compose.yaml config --quiet
    else
        warn "SKIPPED: docker compose is not installed, so it does not check deploy/compose.yaml"
    fi
}
