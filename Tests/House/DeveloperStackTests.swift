// Carillon · DeveloperStackTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

/// How `deploy/up` treats its caller's environment and processes that end.
@Suite("deploy/up", .timeLimit(.minutes(10)))
struct DeveloperStackTests {
    /// Runs a script after the libraries of `deploy/up`, with its own data folder.
    ///
    /// - Returns: standard output and standard error.
    private static func run(_ script: String, environment: [String: String] = [:]) async throws -> String {
        let (text, exit) = try await House.run(
            "DATA=$PWD BIN=/bin\nmkdir pids logs sandbox\n" + script,
            libraries: ["messages", "ports", "processes", "postgres", "environment"],
            environment: environment)
        #expect(exit == .code(0), "\(text)")
        return text
    }

    @Test("a cluster starts with the PostgreSQL that made it, and a missing version is named")
    func postgresVersion() async throws {
        let text = try await Self.run(
            """
            mkdir "$DATA/programs" "$DATA/cluster"
            for program in initdb postgres; do
                printf '#!/bin/sh\\necho "postgres (PostgreSQL) 9.2"\\n' >"$DATA/programs/$program"
                chmod +x "$DATA/programs/$program"
            done
            PATH=$PATH:$DATA/programs
            echo 9 >"$DATA/cluster/PG_VERSION"
            [[ $(find_postgres_programs "$DATA/cluster") == "$DATA/programs" ]] && echo found
            echo 8 >"$DATA/cluster/PG_VERSION"
            (start_postgres postgres "$DATA/cluster" 1) || echo refused
            """)
        #expect(text.contains("found\n"))
        #expect(text.contains("PostgreSQL 8 made "))
        #expect(text.hasSuffix("refused\n"))
    }

    private static let setUp = """
        printf '{"key_id": "K", "team_id": "T"}' >"$DATA/sandbox/apns.json"
        echo 'the authority of the sandbox' >"$DATA/sandbox/ca.pem"
        SANDBOX_PORT=1 SANDBOX_CONTROL_PORT=2 SANDBOX_SMTP_PORT=3 REDIS_PORT=4 POSTGRES_PORT=5 GATEWAY_PORT=6
        POSTGRES_PASSWORD=p AUTH_JWT_SECRET=s
        forget_defaults
        set_environment
        """

    /// The variables that the services get.
    private static func variables(given: [String: String]) async throws -> [String: String] {
        let text = try await Self.run(
            Self.setUp + "\necho \"OWN=$OWN_PROVIDERS\"; env; tail -n 1 \"$PROVIDER_CA\"", environment: given)
        var variables: [String: String] = [:]
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { variables[String(parts[0])] = String(parts[1]) }
        }
        return variables
    }

    @Test("the sandbox replaces every provider that the caller has not configured")
    func sandbox() async throws {
        let variables = try await Self.variables(given: [:])
        #expect(variables["OWN"] == "")
        for name in ["FCM_ENDPOINT", "APNS_ENDPOINT"] { #expect(variables[name] == "https://127.0.0.1:1") }
        for name in ["FCM_CREDENTIALS", "APNS_KEY", "VAPID_KEY"] {
            #expect(variables[name]?.contains("/sandbox/") == true)
        }
        #expect(variables["SMTP_URL"]?.hasSuffix("@127.0.0.1:3") == true)
        #expect(variables["PUBLIC_URL"] == "http://127.0.0.1:6")
        #expect(variables["WEBPUSH_PRIVATE"] == "on")
    }

    @Test(
        "the caller's proxy does not get calls to the stack",
        arguments: [
            ([:], "127.0.0.1"), (["no_proxy": ".example.org"], "127.0.0.1,.example.org"),
            (["NO_PROXY": ".example.org"], "127.0.0.1,.example.org"), (["no_proxy": "*"], "*"),
            (["no_proxy": "a,127.0.0.1"], "a,127.0.0.1"),
        ] as [([String: String], String)])
    func proxy(given: [String: String], exempt: String) async throws {
        let variables = try await Self.variables(given: given)
        #expect(variables["no_proxy"] == exempt && variables["NO_PROXY"] == exempt)
    }

    @Test("a provider that the caller configured keeps its settings and its real endpoint")
    func ownProvider() async throws {
        let given = [
            "FCM_CREDENTIALS": "/mine/fcm.json", "APNS_KEY": "/mine/apns.p8", "APNS_KEY_ID": "ID",
            "APNS_TEAM_ID": "TEAM", "APNS_TOPIC": "org.example.mine", "VAPID_KEY": "/mine/vapid.pem",
            "VAPID_SUBJECT": "mailto:me@example.org", "SMTP_URL": "smtps://relay.example.org",
            "SMTP_PASSWORD_FILE": "/mine/password",
            "SMTP_FROM": "Me <me@example.org>", "PUBLIC_URL": "https://me.example.org",
        ]
        let variables = try await Self.variables(given: given)
        for (name, value) in given { #expect(variables[name] == value) }
        for name in ["FCM_ENDPOINT", "APNS_ENDPOINT", "WEBPUSH_PRIVATE"] { #expect(variables[name] == nil, "\(name)") }
        #expect(variables["OWN"] == " FCM APNs Web Push e-mail")
        let one = try await Self.variables(given: ["FCM_CREDENTIALS": "/mine/fcm.json"])
        #expect(one["OWN"] == " FCM")
        #expect(one["FCM_ENDPOINT"] == nil)
        #expect(one["APNS_ENDPOINT"] == "https://127.0.0.1:1", "the others stay the sandbox's")
    }

    @Test("real providers and the sandbox are trusted side by side")
    func authorities() async throws {
        let text = try await Self.run(
            Self.setUp + "\ncat \"$PROVIDER_CA\"",
            environment: ["PROVIDER_CA": House.root.appending(path: "LICENSE").path])
        #expect(text.contains("Apache License") && text.hasSuffix("the authority of the sandbox\n"))
    }

    @Test("a crash of a tarball's program writes a backtrace, with the options of the image")
    func backtrace() async throws {
        let image = try House.text("deploy/docker/Dockerfile")
        let options = try #require(image.firstMatch(of: #/SWIFT_BACKTRACE=(\S+=)/#)).output.1
        let text = try await Self.run(
            """
            BIN=$DATA
            touch swift-backtrace-static && chmod +x swift-backtrace-static
            \(Self.setUp)
            echo "${SWIFT_BACKTRACE/"$DATA"/BIN}"
            """)
        #expect(text == "\(options)BIN/swift-backtrace-static\n")
    }

    @Test("variables of an earlier start do not count as the caller's own unless they were changed")
    func earlierStart() async throws {
        let text = try await Self.run(
            Self.setUp + """

                GATEWAY_PORT=7 SANDBOX_PORT=8 SANDBOX_SMTP_PORT=9
                export FCM_CREDENTIALS=/mine/fcm.json
                forget_defaults
                set_environment
                printf '%s\n' "$FCM_CREDENTIALS" "$PUBLIC_URL" "$SMTP_URL" "$APNS_ENDPOINT" "own:$OWN_PROVIDERS"
                """)
        #expect(
            text.split(separator: "\n") == [
                "/mine/fcm.json", "http://127.0.0.1:7", "smtp://carillon:pass%3Aword%2F1@127.0.0.1:9",
                "https://127.0.0.1:8", "own: FCM",
            ])
    }

    @Test("a relative path of any setting that names a file becomes absolute; a URL or a word stays")
    func paths() async throws {
        let files = [
            "CATALOG", "APPS", "FCM_CREDENTIALS", "SMTP_PASSWORD_FILE", "WEBHOOK_PROVIDER_SECRET_FILE", "AUTH_JWKS_CA",
            "GATEWAY_TLS_CERT", "GATEWAY_TLS_KEY", "REDIS_CA",
        ]
        var given = ["PUSH_SHAPE": "standard", "AUTH_JWKS": "https://id.example.org/keys"]
        for name in files { given[name] = "mine" }
        let text = try await Self.run(
            """
            cd "$DATA"
            touch mine
            make_paths_absolute
            for name in \(files.joined(separator: " ")); do
                [[ ${!name} == "$(realpath "$DATA")/mine" ]] || echo "$name=${!name}"
            done
            echo "$PUSH_SHAPE $AUTH_JWKS"
            AUTH_JWKS=mine
            make_paths_absolute
            [[ $AUTH_JWKS == /* ]]
            """,
            environment: given)
        #expect(text == "standard https://id.example.org/keys\n")
    }

    @Test("the programs of the caller get the settings of the services, and reach the stack without a proxy")
    func callersPrograms() async throws {
        let text = try await Self.run(
            Self.setUp + """

                BIN=$DATA GATEWAY_URLS=http://127.0.0.1:6 METRICS_URLS=http://127.0.0.1:7
                printf '#!/bin/sh\\necho token\\n' >"$DATA/gateway"
                chmod +x "$DATA/gateway"
                write_environment
                grep -i -e AUTH_USER_CLAIM -e SMTP_PASSWORD_FILE -e no_proxy "$DATA/env"
                """,
            environment: [
                "AUTH_USER_CLAIM": "uid", "SMTP_URL": "smtps://me@relay.example.org",
                "SMTP_PASSWORD_FILE": "/mine/password",
            ])
        #expect(
            text.split(separator: "\n") == [
                "export AUTH_USER_CLAIM='uid'",
                "export SMTP_PASSWORD_FILE='/mine/password'", "export no_proxy='127.0.0.1'",
                "export NO_PROXY='127.0.0.1'",
            ])
    }

    @Test("a secret of the caller that the stack does not use is reported, and its own is not")
    func callersSecret() async throws {
        let text = try await Self.run("load_secrets\nload_secrets", environment: ["AUTH_JWT_SECRET": "mine"])
        #expect(text.split(separator: "\n").count == 1 && text.contains("AUTH_JWT_SECRET: yours is ignored"), "\(text)")
        let other = try await Self.run(Self.setUp + "\nforget_defaults\nload_secrets")
        #expect(other.isEmpty, "the shell has loaded the secret of another stack: \(other)")
    }

    @Test("a demo that fails prints the error of the program that failed")
    func failingDemo() async throws {
        let text = try await Self.run(
            """
            printf '#!/bin/sh\\necho "AUTH_ISSUER: faulty" >&2\\nexit 78\\n' >"$DATA/gateway"
            chmod +x "$DATA/gateway"
            export CARILLON_BIN=$DATA GATEWAY_URL=unused SANDBOX_URL=unused PYTHONDONTWRITEBYTECODE=1
            python3 "$ROOT/deploy/demo/demo.py" || echo "status $?"
            """)
        #expect(text.hasSuffix("\ndemo: AUTH_ISSUER: faulty\nstatus 1\n"), "\(text)")
    }

    @Test("after a start that found its port taken, the first Redis of several gets its own port again")
    func redisPort() async throws {
        let text = try await Self.run(
            """
            PORT=0 taken=32111
            port_is_free() { [[ $1 != "$taken" ]]; }
            echo '32111 32112' >"$DATA/redis.ports"
            choose_ports
            [[ $REDIS_PORT != 32111 ]]
            taken='' GIVEN_PORTS=' '
            choose_ports
            echo "$REDIS_PORT"
            """)
        #expect(text == "32111\n")
    }

    @Test("a cluster is made of new servers until a start has finished, and then keeps its data")
    func interruptedCluster() async throws {
        let (text, exit) = try await House.run(
            """
            DATA=$PWD
            make_cluster() { :; }
            start_redis() {
                mkdir -p "$2"
                [[ ! -e $2/nodes.conf ]] || echo "$1 as before"
                touch "$2/nodes.conf"
            }
            start_cluster {1..12}
            start_cluster {1..12}
            touch "$DATA/env"
            echo finished
            start_cluster {1..12}
            """,
            libraries: ["messages", "redis"])
        #expect(exit == .code(0))
        #expect(text == "finished\n" + (1...6).map { "redis-\($0) as before\n" }.joined())
    }

    @Test("a port that is in use is taken on a machine without IPv6 too")
    func portsWithoutIPv6() async throws {
        let text = try await Self.run(
            """
            cat() {
                echo '0: 0100007F:1F90 00000000:0000 0A'
                return 1
            }
            port_is_free 8080 || echo taken
            port_is_free 8081 && echo free
            """)
        #expect(text == "taken\nfree\n")
    }

    @Test("deploy/test installs Python's venv, and shows why it cannot make an environment")
    func testClients() async throws {
        let (text, exit) = try await House.run(
            #"""
            NEEDED_PACKAGES='' INSTALL_SCRIPT='echo "installing $*"'
            is_present() { [[ $1 != */ensurepip ]]; }
            apt-get() { :; }
            id() { echo 0; }
            eval "$(sed -n '/^install_missing /,/[^\]$/p' "$ROOT/deploy/test")"
            python3() {
                echo 'ensurepip is not available'
                return 1
            }
            install_clients "$PWD/clients"
            """#,
            libraries: ["messages", "install", "clients"])
        #expect(exit == .code(0))
        #expect(text.contains("\ninstalling python3-venv\n"), "\(text)")
        #expect(text.contains("\nensurepip is not available\n") && text.contains("SKIPPED"), "\(text)")
    }

    @Test("an installation with sudo uses the caller's proxy")
    func installationProxy() async throws {
        let (text, exit) = try await House.run(
            #"""
            NEEDED_PACKAGES='thing command:no-such-program'
            INSTALL_SCRIPT='echo "$http_proxy and $no_proxy for $*"'
            apt-get() { :; }
            id() { echo 1000; }
            sudo() { env -i "PATH=$PATH" "$@"; }
            install_missing
            """#,
            libraries: ["messages", "install"],
            environment: ["http_proxy": "http://me:it's@proxy:3128", "no_proxy": ".example.org"])
        #expect(exit == .code(0))
        #expect(text.hasSuffix("\nhttp://me:it's@proxy:3128 and .example.org for thing\n"), "\(text)")
    }

    @Test("without sudo, the command for root is the installation that starts no server")
    func commandForRoot() async throws {
        let (text, exit) = try await House.run(
            #"""
            mkdir programs "a folder"
            ln -s "$(command -v bash)" "$(command -v realpath)" programs/
            cp "$ROOT/deploy/lib/install.sh" "a folder/"
            echo "INSTALL_SCRIPT='echo the guarded installation of \$*'" >>"a folder/install.sh"
            source "a folder/install.sh"
            NEEDED_PACKAGES='redis-server command:no-such-server
                             postgresql command:no-such-server'
            apt-get() { :; }
            id() { echo 1000; }
            PATH=$PWD/programs
            message=$( (install_missing) 2>&1) || eval "${message#*root (su -): }"
            """#,
            libraries: ["messages"])
        #expect(exit == .code(0) && text == "the guarded installation of redis-server postgresql\n", "\(text)")
    }

    @Test("a swift that does not start is reported with its error")
    func brokenSwift() async throws {
        let (text, exit) = try await House.run(
            """
            swift() { echo 'libsqlite3.so.0: cannot open' >&2; return 127; }
            check_swift
            """,
            libraries: ["messages", "install"])
        #expect(exit == .code(1) && text.contains("swift does not start: libsqlite3.so.0: cannot open"), "\(text)")
    }

    @Test("after a killed installation, the next one restores the machine's policy and PostgreSQL's configuration")
    func interruptedInstallation() async throws {
        let (text, exit) = try await House.run(
            """
            mkdir programs
            ln -s /bin/true programs/systemctl
            cat >programs/apt-get <<'END'
            #!/bin/sh
            case $*:$DIE in *" postgresql":yes) kill -KILL $PPID ;; esac
            END
            chmod +x programs/apt-get
            PATH=$PWD/programs:$PATH
            script=${INSTALL_SCRIPT//\\/usr\\/sbin/$PWD}
            script=${script//\\/etc\\/postgresql-common/$PWD}
            script=${script//\\/run\\/carillon/$PWD\\/carillon}
            echo 'of the machine' >createcluster.conf
            for try in 1 2; do
                ! DIE=yes bash -s -- postgresql <<<"$script" 2>/dev/null
                [[ -e policy-rc.d && $(<createcluster.conf) == *create_main_cluster* ]]
            done
            DIE='' bash -s -- redis-server <<<"$script"
            [[ ! -e policy-rc.d ]]
            echo 'also of the machine' >policy-rc.d
            DIE='' bash -s -- redis-server <<<"$script"
            cat createcluster.conf policy-rc.d
            """,
            libraries: ["messages", "install"])
        #expect(exit == .code(0))
        #expect(text.hasSuffix("of the machine\nalso of the machine\n"), "\(text)")
    }

    @Test("a process that dies restarts after doubling pauses, and each restart is reported")
    func restarts() async throws {
        let text = try await Self.run(
            """
            start_process dispatcher-2 "$DATA" bash -c 'echo x >>runs; (($(wc -l <runs) < 3)) || exit 78; exit 3'
            keep_running
            """)
        #expect(text.contains("dispatcher-2 ended with status 3; it will be restarted in 1 s"))
        #expect(text.contains("dispatcher-2 ended with status 3; it will be restarted in 2 s"))
        #expect(text.components(separatedBy: "restarting dispatcher-2").count == 3)
    }

    @Test("processes killed at the same moment all restart")
    func simultaneousDeaths() async throws {
        let text = try await Self.run(
            """
            for name in redis dispatcher; do
                start_process $name "$DATA" bash -c '[[ ! -e again-$0 ]] || exit 78; touch "again-$0"; exec sleep 600' $name
            done
            start_process killer "$DATA" bash -c '
                until [[ -e again-redis && -e again-dispatcher ]]; do sleep 0.1; done
                kill -KILL "$(cat pids/redis.pid)" "$(cat pids/dispatcher.pid)"; exit 78'
            keep_running
            """)
        for name in ["redis", "dispatcher"] {
            #expect(text.contains("\(name) ended with status 137; it will be restarted in 1 s"))
            #expect(text.contains("restarting \(name)"))
        }
    }

    @Test("a folder with files of others is refused unchanged; a new, an empty and an earlier one are taken")
    func foreignData() async throws {
        let (text, exit) = try await House.run(
            """
            mkdir -m 755 foreign empty earlier
            mkdir foreign/postgres earlier/pids earlier/logs
            touch earlier/lock
            "$ROOT/deploy/up" --data foreign || echo refused
            ls -A foreign
            stat -c %a foreign
            for folder in new empty earlier empty; do
                # The check of the tarball comes after that of the folder.
                "$ROOT/deploy/up" --from none --data "$folder" || stat -c '%a %n' "$folder"
            done
            """,
            libraries: ["messages"])
        #expect(exit == .code(0))
        #expect(text.contains("foreign is neither empty nor a folder of deploy/up; give --data"), "\(text)")
        #expect(text.contains("\nrefused\npostgres\n755\n"), "\(text)")
        #expect(text.components(separatedBy: "none: no such file\n700 ").count == 5, "\(text)")
    }

    @Test("a cluster of PostgreSQL is made again after an interrupted start, and never once it is complete")
    func interruptedInitdb() async throws {
        let text = try await Self.run(
            #"""
            POSTGRES_PASSWORD=p
            create_postgres() {
                mkdir "$1"
                touch "$1/$try"
                [[ $try != 1 ]] || exit 1
            }
            for try in 1 2 3; do
                (eval "$(sed -n '/^rmdir .*DATA.postgres/,/^touch /p' "$ROOT/deploy/up")") || echo failed
            done
            ls postgres postgres.made
            """#)
        #expect(text == "failed\npostgres.made\n\npostgres:\n2\n")
    }

    @Test(
        "deploy/test limits the tests that run at a time, with the options that swift has",
        arguments: [
            ("--experimental-maximum-parallelization-width", "--experimental-maximum-parallelization-width 4"),
            ("--num-workers", "--no-parallel"),
        ])
    func parallelTests(option: String, passed: String) async throws {
        let text = try await Self.run(
            #"""
            swift() { echo "  $OPTION <number>"; }
            nproc() { echo 1; }
            eval "$(sed -n '/^width=/,/^\[\[ /p' "$ROOT/deploy/test")"
            echo "${parallel[*]}"
            """#,
            environment: ["OPTION": option])
        #expect(text == "\(passed)\n")
    }

    @Test("a process with a faulty configuration does not restart")
    func faulty() async throws {
        let text = try await Self.run(
            """
            start_process gateway "$DATA" bash -c 'echo PUBLIC_URL: is not a URL; exit 78'
            keep_running
            """)
        #expect(text.contains("PUBLIC_URL: is not a URL"))
        #expect(text.contains("gateway ended with status 78: faulty configuration; it will not be restarted"))
        #expect(!text.contains("restarting"))
    }
}
