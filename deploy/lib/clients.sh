# Carillon · clients.sh
# SPDX-License-Identifier: Apache-2.0
#
# The Python clients of others that end-to-end tests drive. Sourced, after messages.sh.

# install_clients FOLDER: makes a virtual environment with them in FOLDER, unless it is there, and exports
# CARILLON_TEST_PYTHON; where there is no python3 or no package index, says so, and the tests that need them are skipped.
# Where CI is true, that ends the script: nobody reads what a green run has skipped.
install_clients() {
    local folder=$1 list=Tests/Clients/requirements.txt
    [[ -z ${CARILLON_TEST_PYTHON:-} ]] || return 0
    if ! cmp -s "$list" "$folder/requirements.txt"; then
        heading "Installing clients of others"
        rm -rf "$folder"
        # Debian parts venv from python3, and one that lacks it fails here.
        if ! python3 -m venv "$folder" >/dev/null 2>&1 ||
            ! timeout 300 "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 \
                --timeout 15 --no-deps --requirement "$list"; then
            rm -rf "$folder"
            [[ ${CI:-} != true ]] || fail "the clients of $list cannot be installed, and tests need them"
            warn "SKIPPED: the clients of $list cannot be installed; tests that need them are skipped"
            return 0
        fi
        # Last, so that a half-made environment is made again.
        cp "$list" "$folder/requirements.txt"
    fi
    export CARILLON_TEST_PYTHON=$folder/bin/python
}
