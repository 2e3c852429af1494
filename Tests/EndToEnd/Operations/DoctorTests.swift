// Carillon · DoctorTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Storage
import Support
import Testing

/// `gateway doctor` and `dispatcher doctor` on a real stack.
@Suite(.timeLimit(.minutes(10)))
struct DoctorTests {
    /// Test servers run without durability against a crash of the machine.
    private static let expected: Set<String> = ["postgres durability"]

    private struct Examined {
        let code: Int32
        let output: String
        let errors: String
        let checks: [JSONValue]

        /// Failed checks, except those that always fail here.
        var failures: Set<String> {
            Set(self.checks.filter { $0["outcome"]?.string == "fail" }.compactMap { $0["check"]?.string })
                .subtracting(DoctorTests.expected)
        }

        /// The worst outcome of a check, or nil.
        func outcome(_ check: String) -> String? {
            let outcomes = self.checks.filter { $0["check"]?.string == check }.compactMap { $0["outcome"]?.string }
            return ["fail", "warn", "skipped", "ok"].first { outcomes.contains($0) }
        }

        func found(_ check: String) -> String {
            self.checks.filter { $0["check"]?.string == check }.compactMap { $0["found"]?.string }
                .joined(separator: "\n")
        }
    }

    private static func examine(
        _ stack: Stack,
        _ program: String,
        _ environment: [String: String] = [:],
        _ arguments: [String] = []
    ) async throws -> Examined {
        let process = try await stack.spawn(
            program, ["doctor", "--json"] + arguments, name: "doctor-\(UUID().uuidString.prefix(8))",
            environment: environment)
        guard case .code(let code) = try await process.waitForExit() else {
            throw FixtureError("the doctor ended by a signal")
        }
        let checks = (try? JSONParser.parse(Array(process.output().utf8)))?["checks"]?.array ?? []
        return Examined(code: code, output: process.output(), errors: process.errors(), checks: checks)
    }

    @Test("both doctors pass on a sound stack and print no secret")
    func sound() async throws {
        try await Stack.with { stack in
            let gateway = try await Self.examine(stack, "gateway")
            let code: Int32 = gateway.outcome("postgres durability") == "fail" ? 1 : 0
            #expect(gateway.failures.isEmpty, "\(gateway.output)")
            #expect(gateway.code == code)
            for check in [
                "settings", "catalog", "redis", "redis version", "redis role", "redis eviction", "redis persistence",
                "postgres", "postgres version", "postgres encoding", "migrations", "clocks", "time zones",
                "tls certificate", "web push key",
            ] { #expect(gateway.outcome(check) == "ok", "\(check) in \(gateway.output)") }
            #expect(gateway.outcome("open files") != nil)
            let dispatcher = try await Self.examine(stack, "dispatcher", stack.mailSettings())
            #expect(dispatcher.failures.isEmpty, "\(dispatcher.output)")
            #expect(dispatcher.code == code)
            #expect(dispatcher.outcome("credentials") == "ok")
            #expect(dispatcher.outcome("provider") == "ok")
            for provider in ["fcm", "apns", "email", "access token"] {
                #expect(dispatcher.found("provider").contains(provider), "\(provider) in \(dispatcher.output)")
            }
            #expect(stack.sandbox.received().isEmpty)
            let offline = try await Self.examine(stack, "dispatcher", [:], ["--offline"])
            #expect(offline.outcome("provider") == "skipped")
            for text in [gateway.output, dispatcher.output, gateway.errors, dispatcher.errors] {
                #expect(!text.contains(Stack.secret))
            }

            let text = try await stack.spawn("dispatcher", ["doctor"], name: "doctor-text")
            #expect(try await text.waitForExit() == .code(code))
            #expect(text.output().contains("ok      redis eviction"))
            #expect(!text.output().contains("\u{1B}"))
        }
    }

    @Test("each broken part is found, and the others are still checked")
    func broken() async throws {
        try await Stack.with { stack in
            try await stack.query("DELETE FROM carillon.schema_migrations WHERE number = 1")
            let unmigrated = try await Self.examine(stack, "gateway")
            #expect(unmigrated.code == 1)
            #expect(unmigrated.outcome("migrations") == "fail")
            #expect(unmigrated.found("migrations").contains("1 schema"))

            try await stack.connection.send("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            try await stack.connection.send("CONFIG", "SET", "maxmemory", "1gb")
            try await stack.connection.send("CONFIG", "SET", "appendonly", "no")
            let evicting = try await Self.examine(stack, "dispatcher", [:], ["--offline"])
            #expect(evicting.code == 1)
            #expect(evicting.outcome("redis eviction") == "fail")
            #expect(evicting.outcome("redis persistence") == "warn")

            let port = try FreePort.next()
            let gone = try await Self.examine(
                stack, "dispatcher",
                [
                    "REDIS_URL": "redis://:hunter2@127.0.0.1:\(port)/0",
                    "DATABASE_URL": "postgresql://ada:hunter2@127.0.0.1:\(port)/none",
                    "FCM_ENDPOINT": "https://127.0.0.1:\(port)",
                ]
            )
            #expect(gone.code == 1)
            for check in ["redis", "postgres", "provider"] { #expect(gone.outcome(check) == "fail", "\(check)") }
            for check in ["redis version", "redis memory", "redis installation", "postgres version", "migrations"] {
                #expect(gone.outcome(check) == "skipped", "\(check) in \(gone.output)")
            }
            #expect(gone.found("provider").contains("connect"))
            #expect(gone.outcome("catalog") == "ok")
            #expect(!gone.output.contains("hunter2"))

            let untrusted = try await Self.examine(stack, "dispatcher", ["PROVIDER_CA": ""])
            #expect(untrusted.outcome("provider") == "fail")
            #expect(untrusted.found("provider").contains("tls"))
        }
    }

    @Test("a PostgreSQL that refuses writes fails, and the remedy names the primary")
    func readOnly() async throws {
        try await Stack.with { stack in
            let url = try #require(stack.database?.url)
            let option = (url.contains("?") ? "&" : "?") + "options=-c%20default_transaction_read_only%3Don"
            let examined = try await Self.examine(stack, "gateway", ["DATABASE_URL": url + option])
            #expect(examined.outcome("postgres") == "fail")
            #expect(examined.output.contains("name the primary"), "\(examined.output)")
        }
    }

    @Test("a doctor and a check of migrations leave the epoch of a restored database as it is")
    func restored() async throws {
        try await Stack.with { stack in
            // The state that a restore leaves.
            try await stack.query("UPDATE carillon.epoch SET server = 'another'")
            func epoch() async throws -> String? {
                try await stack.query("SELECT epoch::text FROM carillon.epoch").first?.text(0)
            }
            let before = try await epoch()
            for program in ["gateway", "dispatcher"] {
                #expect(try await Self.examine(stack, program).outcome("migrations") == "ok")
                #expect(try await epoch() == before, "\(program)")
            }
            #expect(try await stack.command(["migrate", "--check"], program: "gateway").code == 0)
            #expect(try await epoch() == before)
            // A command that works on the database begins an epoch.
            #expect(try await stack.command(["migrate"], program: "gateway").code == 0)
            #expect(try await epoch() != before)
        }
    }

    @Test("a Redis with the work of another database is refused until it is freed")
    func installation() async throws {
        try await TestDatabase.with { other in
            // All test databases are copies of one, and a copy keeps the identity.
            try await other.pool.query("UPDATE carillon.outbox_database SET id = gen_random_uuid()")
            try await Stack.with { stack in
                #expect(try await Self.examine(stack, "gateway").outcome("redis installation") == nil)
                let first = try await stack.startDispatcher()
                #expect(try await Self.examine(stack, "gateway").outcome("redis installation") == "ok")
                let wrong = ["DATABASE_URL": other.url]
                for program in ["gateway", "dispatcher"] {
                    let examined = try await Self.examine(stack, program, wrong, ["--offline"])
                    #expect(examined.outcome("redis installation") == "fail", "\(examined.output)")
                }
                for (program, command) in [("gateway", "serve"), ("dispatcher", "run")] {
                    let refused = try await stack.spawn(
                        program, [command], name: "refused-\(program)", environment: wrong)
                    #expect(try await refused.waitForExit() == .code(78))
                    for name in ["REDIS_URL", "DATABASE_URL", "DEL carillon:installation"] {
                        #expect(refused.errors().contains(name), "\(name) in \(refused.errors())")
                    }
                }
                let leases = try await stack.connection.send("KEYS", "carillon:dispatcher:*").strings()
                #expect(leases.count == 1)
                // Its sweeps would claim Redis again.
                _ = try await first.stop()
                try await stack.connection.send("DEL", "carillon:installation")
                // A gateway claims nothing.
                _ = try await stack.startGateway(environment: wrong)
                #expect(try await stack.connection.send("EXISTS", "carillon:installation").integer() == 0)
                _ = try await stack.startDispatcher(name: "accepted", environment: wrong)
            }
        }
    }

    @Test("a gateway that starts without Redis ends when Redis has the work of another database")
    func lateRedis() async throws {
        try await Stack.with { stack in
            try await stack.connection.send("SET", "carillon:installation", "another")
            try await stack.redis.stall()
            let gateway = try await stack.startGateway()
            stack.redis.resume()
            #expect(try await gateway.process.waitForExit() == .code(78))
            #expect(gateway.process.errors().contains("DEL carillon:installation"))
        }
    }

    @Test("a cluster's server that is named alone fails; the cluster passes if a lost master stops no other")
    func cluster() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await Stack.with { stack in
            let alone = try await Self.examine(stack, "gateway", ["REDIS_URL": cluster.servers[0].url])
            #expect(alone.outcome("redis cluster") == "fail", "\(alone.output)")
            let whole = try await Self.examine(stack, "gateway", ["REDIS_URL": cluster.url])
            #expect(whole.outcome("redis") == "ok" && whole.outcome("redis cluster") == "warn", "\(whole.output)")
            for server in cluster.servers {
                try await TestRedis.withPatience(server.url) { redis in
                    _ = try await redis.send("CONFIG", "SET", "cluster-require-full-coverage", "no")
                }
            }
            let partial = try await Self.examine(stack, "gateway", ["REDIS_URL": cluster.url])
            #expect(partial.outcome("redis") == "ok" && partial.outcome("redis cluster") == nil, "\(partial.output)")
        }
    }

    @Test("faulty settings exit with 78, and everything else is still checked")
    func settings() async throws {
        try await Stack.with { stack in
            let faulty = try await Self.examine(
                stack, "gateway",
                [
                    "GATEWAY_PORT": "80a", "AUTH_JWT_SECRET": "hunter2-too-short", "CATALOG": "/nowhere",
                    "DEFAULT_ZONE": "No/Where", "PUBLIC_URL": "nope", "APPS": "/nowhere",
                ])
            #expect(faulty.code == 78)
            for name in ["GATEWAY_PORT", "AUTH_JWT_SECRET", "DEFAULT_ZONE", "PUBLIC_URL", "APPS"] {
                #expect(faulty.found("settings").contains(name), "\(name) in \(faulty.output)")
            }
            #expect(faulty.outcome("catalog") == "fail")
            #expect(faulty.outcome("redis") == "ok")
            #expect(!faulty.output.contains("hunter2"))
            let dispatcher = try await Self.examine(stack, "dispatcher", ["DEFAULT_ZONE": "No/Where"], ["--offline"])
            #expect(dispatcher.code == 78 && dispatcher.found("settings").contains("DEFAULT_ZONE"))
        }
    }

    @Test("running dispatchers with other providers or apps are a warning that names what each lacks")
    func fleet() async throws {
        try await Stack.with { stack in
            let alone = try await Self.examine(stack, "dispatcher", [:], ["--offline"])
            #expect(alone.outcome("dispatchers") == nil, "\(alone.output)")
            // A report of the future does not age during the test.
            let now = Timestamp(seconds: 4_000_000_000)
            let state = ProviderState(
                provider: .fcm, app: "news", dispatcher: "one", breaker: .closed, until: nil, inFlight: 0)
            try await Live(stack.connection).providerBoard.publish([state], dispatcher: "one", now: now)
            let examined = try await Self.examine(stack, "dispatcher", [:], ["--offline"])
            #expect(examined.outcome("dispatchers") == "warn", "\(examined.output)")
            for words in ["one: no apns of app default, fcm of app default", "these settings: no fcm of app news"] {
                #expect(examined.found("dispatchers").contains(words), "\(words) in \(examined.output)")
            }
        }
    }

    @Test("an outbox must be installed, and the role must be allowed to relay it")
    func outboxes() async throws {
        try await TestDatabase.with { shop in
            try await TestDatabase.with(isMigrated: false) { empty in
                try await Stack.with { stack in
                    // A role of the whole server.
                    let role = "relay_\(UInt32.random(in: .min ... .max))"
                    try await shop.pool.query("CREATE ROLE \(role)")
                    func examine(_ url: String) async throws -> Examined {
                        try await Self.examine(stack, "dispatcher", ["OUTBOX_DATABASE_URLS": url], ["--offline"])
                    }
                    try await withCleanUp {
                        try await shop.pool.query("DROP OWNED BY \(role)")
                        try await shop.pool.query("DROP ROLE \(role)")
                    } _: {
                        let option = "options=-c%20role%3D\(role)"
                        let url = shop.url + (shop.url.contains("?") ? "&" : "?") + option
                        let refused = try await examine(url)
                        #expect(refused.outcome("outbox 1") == "fail")
                        for part in [role, "USAGE on schema carillon", "DELETE on carillon.outbox"] {
                            #expect(refused.found("outbox 1").contains(part), "\(part) in \(refused.output)")
                        }
                        try await shop.pool.query("GRANT USAGE ON SCHEMA carillon TO \(role)")
                        try await shop.pool.query("GRANT SELECT, DELETE ON carillon.outbox TO \(role)")
                        try await shop.pool.query("GRANT SELECT ON carillon.outbox_database TO \(role)")
                        #expect(try await examine(url).outcome("outbox 1") == "ok")
                        #expect(try await examine(empty.url).found("outbox 1").contains("no outbox"))
                    }
                }
            }
        }
    }

    @Test("connections of all roles count, also for a role that may not see them")
    func connections() async throws {
        try await Stack.with { stack in
            // A role of the whole server.
            let role = "doctor_\(UInt32.random(in: .min ... .max))"
            try await stack.query("CREATE ROLE \(role)")
            try await withCleanUp {
                try await stack.query("DROP OWNED BY \(role)")
                try await stack.query("DROP ROLE \(role)")
            } _: {
                try await stack.query("GRANT USAGE ON SCHEMA carillon TO \(role)")
                try await stack.query("GRANT ALL ON ALL TABLES IN SCHEMA carillon TO \(role)")
                let url = try #require(stack.database?.url)
                let option = (url.contains("?") ? "&" : "?") + "options=-c%20role%3D\(role)"
                let examined = try await Self.examine(stack, "gateway", ["DATABASE_URL": url + option])
                let count = Int(examined.found("postgres connections").prefix { $0.isNumber })
                // The doctor's own at least; its login is another role.
                #expect((count ?? 0) > 0, "\(examined.output)")
            }
        }
    }

    @Test("a key set without an audience is a warning")
    func audience() async throws {
        try await Stack.with { stack in
            let keySet = ["AUTH_JWKS": "https://issuer.example/keys"]
            let open = try await Self.examine(stack, "gateway", keySet, ["--offline"])
            #expect(open.outcome("token audience") == "warn")
            #expect(open.found("token audience").contains("AUTH_AUDIENCE"))
            let named = keySet.merging(["AUTH_AUDIENCE": "app"]) { $1 }
            #expect(try await Self.examine(stack, "gateway", named, ["--offline"]).outcome("token audience") == nil)
        }
    }

    @Test("credentials, their files and certificates are checked")
    func credentials() async throws {
        try await Stack.with { stack in
            let file = stack.directory.file("account.json")
            try Data(#"{"project_id":"p"}"#.utf8).write(to: URL(filePath: file))
            try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: file)
            let examined = try await Self.examine(stack, "dispatcher", ["FCM_CREDENTIALS": file], ["--offline"])
            #expect(examined.code == 1)
            #expect(examined.found("credentials").contains("FCM_CREDENTIALS"))
            #expect(examined.outcome("secret files") == "warn")
            #expect(examined.found("secret files").contains(file))

            // It may hold secrets of providers, which the gateway does not use.
            let apps = stack.directory.file("apps.yaml")
            try Data("apps: {news: {devices: 3}}".utf8).write(to: URL(filePath: apps))
            try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: apps)
            let shared = try await Self.examine(stack, "gateway", ["APPS": apps])
            #expect(shared.outcome("settings") == "ok", "\(shared.output)")
            #expect(shared.found("secret files").contains("\(apps) is readable"), "\(shared.output)")

            let certificate = try await TestCertificate.make()
            let other = try await TestCertificate.make()
            let tls = ["GATEWAY_TLS_CERT": certificate.certificateFile, "GATEWAY_TLS_KEY": certificate.keyFile]
            // The certificate expires in two days.
            #expect(try await Self.examine(stack, "gateway", tls).outcome("tls certificate") == "warn")
            let wrong = tls.merging(["GATEWAY_TLS_KEY": other.keyFile]) { $1 }
            #expect(try await Self.examine(stack, "gateway", wrong).outcome("tls certificate") == "fail")

            let none = [
                "FCM_CREDENTIALS": "", "APNS_KEY": "", "APNS_KEY_ID": "", "APNS_TEAM_ID": "", "APNS_TOPIC": "",
                "VAPID_KEY": "", "VAPID_SUBJECT": "",
            ]
            let silent = try await Self.examine(stack, "dispatcher", none)
            #expect(silent.outcome("credentials") == "warn")
        }
    }
}

/// A faulty configuration ends the start with exit code 78 and names every fault.
@Suite(.timeLimit(.minutes(10)))
struct ConfigurationTests {
    private static let cleared = [
        "REDIS_URL": "", "DATABASE_URL": "", "CATALOG": "", "AUTH_JWT_SECRET": "", "AUTH_JWKS": "",
    ]

    @Test(
        "a faulty configuration is refused with every fault named and no secret shown",
        arguments: [("gateway", "serve"), ("dispatcher", "run")])
    func faults(program: String, command: String) async throws {
        let directory = try TemporaryDirectory("configuration")
        var environment = Self.cleared
        environment["REDIS_URL"] = "http://127.0.0.1"
        environment["GATEWAY_PORT"] = "80a"
        environment["METRICS_PORT"] = "-1"
        environment["CATALOG"] = "/nowhere/catalog.yaml"
        environment["LOG_FORMAT"] = "xml"
        environment["AUTH_JWT_SECRET"] = "hunter2-too-short"
        environment["FCM_CREDENTIALS"] = "/nowhere/account.json"
        environment["PROVIDER_CA"] = "/nowhere/ca.pem"
        environment["DEFAULT_ZONE"] = "No/Where"
        let process = try await ChildProcess.spawn(
            TestProducts.path(program),
            [command],
            environment: environment,
            directory: directory.path
        )
        #expect(try await process.waitForExit() == .code(78))
        let errors = process.errors()
        let shared = ["REDIS_URL", "DATABASE_URL", "CATALOG", "LOG_FORMAT", "DEFAULT_ZONE", "AUTH_JWT_SECRET"]
        let own =
            program == "gateway"
            ? ["GATEWAY_PORT"] : ["METRICS_PORT", "FCM_CREDENTIALS", "PROVIDER_CA cannot be read"]
        for name in shared + own { #expect(errors.contains(name), "\(name) is not named") }
        #expect(!errors.contains("hunter2"))
    }

    @Test(
        "a shape that cannot be used is refused with the key and the fix",
        arguments: [
            ("story: entity", "PUSH_SHAPE cannot be used: story: unknown source entity; use one of notification_id"),
            ("story: {}", "PUSH_SHAPE cannot be used: line 1: story: expected a source or a list of them"),
            (nil, "PUSH_SHAPE cannot be used: the file cannot be read as UTF-8 text; give `standard`, or the path"),
        ] as [(String?, String)]
    )
    func shape(text: String?, fault: String) async throws {
        let directory = try TemporaryDirectory("shape")
        let file = directory.file("shape.yaml")
        if let text { try Data(text.utf8).write(to: URL(filePath: file)) }
        var environment = Self.cleared
        environment["FCM_CREDENTIALS"] = directory.file("account.json")
        environment["PUSH_SHAPE"] = file
        let process = try await ChildProcess.spawn(
            TestProducts.path("dispatcher"), ["run"], environment: environment, directory: directory.path)
        #expect(try await process.waitForExit() == .code(78))
        #expect(process.errors().contains(fault))
    }
}
