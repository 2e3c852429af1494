# Carillon · clients.sh
# SPDX-License-Identifier: Apache-2.0
#
# Third-party Python clients for end-to-end tests. Source after messages.sh.

# install_clients FOLDER: creates a virtual environment in FOLDER, unless it exists, and exports
# CARILLON_TEST_PYTHON. Without python3-venv or a package index it warns, and tests skip these
# clients. With CI=true it fails instead, because skips in a green run go unnoticed.
install_clients() {
    local folder=$1 list=Tests/Programs/requirements.txt
    [[ -z ${CARILLON_TEST_PYTHON:-} ]] || return 0
    if ! cmp -s "$list" "$folder/requirements.txt"; then
        heading "Installing third-party clients"
        rm -rf "$folder"
        if ! python3 -m venv "$folder" ||
            ! timeout 300 "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 \
                --timeout 15 --no-deps --requirement "$list"; then
            rm -rf "$folder"
            [[ ${CI:-} != true ]] || fail "cannot install the clients of $list, which tests need"
            warn "SKIPPED: cannot install the clients of $list; skipping the tests that need them"
            return 0
        fi
        # Write this last, so that an incomplete environment is rebuilt.
        cp "$list" "$folder/requirements.txt"
    fi
    export CARILLON_TEST_PYTHON=$folder/bin/python
}
