// Carillon · SettingsFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Operations

@Suite("Faults of settings", .timeLimit(.minutes(10)))
struct SettingsFaultTests {
    private static let zoneFault =
        "DEFAULT_ZONE is not an IANA time zone in this machine's tzdata, such as Europe/Berlin"
    private static let queryFault =
        "REDIS_URL has a query or a fragment; write the database as /2, and ? or # in a password as %3F or %23"
    private static let unixQueryFault =
        "REDIS_URL has more than the query db=N; write ? or # in the path as %3F or %23"
    private static let urlFault = "PUBLIC_URL must be a URL such as https://notify.example.com"

    @Test(
        "a database URL whose password could be read as a host, a port or a path is refused without showing it",
        arguments: ["DATABASE_URL", "DATABASE_READ_URL", "OUTBOX_DATABASE_URLS"],
        [
            "postgresql://u:hun@ter2@h/db", "postgres://u:hun/ter2@h/db", "postgresql://u:1/hunter2@h/db",
            "postgresql://u:hun?a/ter2@h/db", "postgresql://u:p@hun/ter2@h/db", "postgresql://u@h:hunter2/db",
            "postgresql://u@h:65536/hunter2", "postgresql://u@[::1]:0/hunter2", "postgresql://u@h:1,i:ter2/db",
        ]
    )
    func databases(name: String, text: String) {
        #expect(
            Self.faults(of: name, text) == [
                "\(name) must have valid hosts and ports (1 to 65535); percent-encode the password, with @ as %40 and "
                    + "/ as %2F"
            ])
    }

    private static func faults(of name: String, _ text: String) -> [String] {
        let readings = Readings([name: text])
        return name == "OUTBOX_DATABASE_URLS" ? readings.dispatcherFaults : readings.gatewayFaults
    }

    @Test(
        "a database URL that libpq cannot read is refused without showing it",
        arguments: ["DATABASE_URL", "DATABASE_READ_URL", "OUTBOX_DATABASE_URLS"],
        [
            "postgresql://u:hunter2@h/db?schema=public", "postgres://u:hunter2@h/db?sslmode=require&pgbouncer=true",
            "postgresql://u:hunter2%@h/db",
        ]
    )
    func unreadable(name: String, text: String) {
        #expect(
            Self.faults(of: name, text) == [
                "\(name) cannot be read by libpq; look for an unknown parameter, or a % that must be %25"
            ])
    }

    @Test(
        "each malformed gateway variable is reported with its rule",
        arguments: [
            (
                ["REDIS_URL": "http://redis"],
                "REDIS_URL has the unsupported scheme http://; use redis://, rediss://, redis+sentinel://, redis+cluster:// "
                    + "or unix://"
            ),
            (["REDIS_URL": "redis://"], "REDIS_URL has no host; use redis://host:port/database"),
            (
                ["REDIS_URL": "redis+cluster://u:hunter%2@h"],
                "REDIS_URL has a login that is not percent-encoded; write % as %25"
            ),
            (["REDIS_PARTS": "257"], "REDIS_PARTS must be a whole number from 1 to 256"),
            (["REDIS_URL": "redis+cluster://h", "REDIS_PARTS": "1"], "REDIS_PARTS must be 2 or more in a cluster"),
            (["REDIS_URL": "redis://h/x"], "REDIS_URL has a database that is not a number"),
            (["REDIS_URL": "redis://h?db=2"], Self.queryFault), (["REDIS_URL": "rediss://h/2#x"], Self.queryFault),
            (["REDIS_URL": "redis+sentinel://h/name?db=2"], Self.queryFault),
            (
                ["REDIS_URL": "redis+cluster://h?db=2"],
                "REDIS_URL has a server that is not host:port; use redis+cluster://host:6379,host:6379"
            ),
            (["REDIS_URL": "unix:///r.sock?database=2"], Self.unixQueryFault),
            (["REDIS_URL": "unix:///r.sock?db=2&db=3"], Self.unixQueryFault),
            (["REDIS_URL": "unix:///r#1.sock"], Self.unixQueryFault),
            (["REDIS_URL": "redis://h:70000"], "REDIS_URL has a port that is not from 1 to 65535"),
            (["REDIS_URL": "redis+sentinel://h,h:0/name"], "REDIS_URL has a port that is not from 1 to 65535"),
            (["DATABASE_URL": nil], "DATABASE_URL is missing; give postgresql://user@host/database"),
            (["DEFAULT_ZONE": "No/Where"], Self.zoneFault), (["PUBLIC_URL": "nope"], Self.urlFault),
            (["DATABASE_CONNECTIONS": "0"], "DATABASE_CONNECTIONS must be a whole number from 1 to 256"),
            (["LEASE_SECONDS": "2"], "LEASE_SECONDS must be a whole number from 3 to 60"),
            (["DATABASE_CONNECTIONS": "x"], "DATABASE_CONNECTIONS must be a whole number from 1 to 256"),
            (["CATALOG": nil], "CATALOG is missing; give the path of a YAML file or a folder of them"),
            (
                ["LOG_LEVEL": "loud"],
                "LOG_LEVEL must be one of trace, debug, info, notice, warning, error, critical"
            ),
            (["LOG_FORMAT": "xml"], "LOG_FORMAT must be one of text, json"),
            (["GATEWAY_PORT": "65536"], "GATEWAY_PORT must be a whole number from 0 to 65535"),
            (["GATEWAY_PORT": "-1"], "GATEWAY_PORT must be a whole number from 0 to 65535"),
            (["GATEWAY_PORT": "80a"], "GATEWAY_PORT must be a whole number from 0 to 65535"),
            (["GATEWAY_TLS_CERT": "c"], "GATEWAY_TLS_CERT and GATEWAY_TLS_KEY go together; one is missing"),
            (["GATEWAY_TLS_KEY": "k"], "GATEWAY_TLS_CERT and GATEWAY_TLS_KEY go together; one is missing"),
            (["AUTH_JWT_SECRET": nil], "AUTH_JWT_SECRET or AUTH_JWKS is required"),
            (
                ["AUTH_JWT_SECRET": "0123456789abcdef0123456789abcde"],
                "AUTH_JWT_SECRET must have at least 32 bytes (RFC 7518 section 3.2)"
            ),
            (
                ["AUTH_JWT_SECRET_PREVIOUS": "0123456789abcdef0123456789abcde"],
                "AUTH_JWT_SECRET_PREVIOUS must have at least 32 bytes (RFC 7518 section 3.2)"
            ),
            (
                [
                    "AUTH_JWT_SECRET": nil, "AUTH_JWKS": "k.json",
                    "AUTH_JWT_SECRET_PREVIOUS": "0123456789abcdef0123456789abcdef",
                ],
                "AUTH_JWT_SECRET_PREVIOUS needs AUTH_JWT_SECRET, which is missing"
            ),
            (["AUTH_JWKS": "http://keys.example/k"], "AUTH_JWKS must be https; http only for this machine"),
            (["AUTH_JWKS": "http://127.0.0.1.example/k"], "AUTH_JWKS must be https; http only for this machine"),
            (["AUTH_JWKS": "http://[::2]/k"], "AUTH_JWKS must be https; http only for this machine"),
            (["AUTH_JWKS": "ftp://keys.example/k"], "AUTH_JWKS must be a path or an https URL"),
            (
                ["AUTH_JWKS": "http://127.0.0.1@keys.example/k"],
                "AUTH_JWKS must be a path or a URL with a host and without credentials"
            ),
            (["AUTH_COOKIE": "a b"], "AUTH_COOKIE must be a cookie name"),
            (["AUTH_COOKIE": "a=b"], "AUTH_COOKIE must be a cookie name"),
            (
                ["ALLOWED_ORIGINS": "https://app.example,*"],
                "ALLOWED_ORIGINS must be origins such as https://app.example.com, with commas between them"
            ),
            (
                ["ALLOWED_ORIGINS": "https://app.example/"],
                "ALLOWED_ORIGINS must be origins such as https://app.example.com, with commas between them"
            ),
            (
                ["ALLOWED_ORIGINS": "app.example"],
                "ALLOWED_ORIGINS must be origins such as https://app.example.com, with commas between them"
            ),
            (
                ["WEBPUSH_ORIGINS": "push.example"],
                "WEBPUSH_ORIGINS must be origins such as https://fcm.googleapis.com or https://*.push.apple.com, "
                    + "with commas between them, or *"
            ),
            (["AUTH_CLOCK_SKEW": "301"], "AUTH_CLOCK_SKEW must be a whole number from 0 to 300"),
            (["APNS_ENVIRONMENT": "dev"], "APNS_ENVIRONMENT must be one of production, sandbox"),
        ] as [([String: String?], String)]
    )
    func gateway(changes: [String: String?], fault: String) {
        #expect(Readings(changes).gatewayFaults == [fault])
    }

    @Test(
        "each malformed dispatcher variable is reported with its rule",
        arguments: [
            (["METRICS_PORT": "no"], ["METRICS_PORT must be a whole number from 0 to 65535"]),
            (
                ["AUTH_JWT_SECRET": "0123456789"],
                ["AUTH_JWT_SECRET must have at least 32 bytes (RFC 7518 section 3.2)"]
            ),
            (["AUDIT_DAYS": "7"], ["AUDIT_DAYS must be a whole number from 8 to 400"]),
            (["AUDIT_DAYS": "401"], ["AUDIT_DAYS must be a whole number from 8 to 400"]),
            (
                ["APNS_KEY": "k"],
                ["APNS_KEY_ID", "APNS_TEAM_ID", "APNS_TOPIC"].map { "\($0) is required with APNS_KEY" }
            ),
            (
                ["VAPID_KEY": "k"],
                ["VAPID_SUBJECT is required with VAPID_KEY"]
            ),
            (["WEBPUSH_PRIVATE": "yes"], ["WEBPUSH_PRIVATE must be one of off, on"]),
            (["DEFAULT_ZONE": "No/Where", "PUBLIC_URL": "nope"], [Self.zoneFault, Self.urlFault]),
            (
                ["WEBHOOK_PROVIDER_URL": "u"],
                [
                    "WEBHOOK_PROVIDER_SECRET or WEBHOOK_PROVIDER_SECRET_FILE is required with WEBHOOK_PROVIDER_URL"
                ]
            ),
            (
                [
                    "WEBHOOK_PROVIDER_URL": "u", "WEBHOOK_PROVIDER_SECRET_FILE": "s", "SMTP_URL": "u",
                    "SMTP_PASSWORD_FILE": "p",
                ],
                ["SMTP_FROM is required with SMTP_URL"]
            ),
        ] as [([String: String?], [String])]
    )
    func dispatcher(changes: [String: String?], faults: [String]) {
        #expect(Readings(changes).dispatcherFaults == faults)
    }

    @Test("reports all faults at once")
    func allAtOnce() {
        let readings = Readings([
            "REDIS_URL": "x", "DATABASE_URL": nil, "DATABASE_CONNECTIONS": "x", "CATALOG": nil, "LOG_LEVEL": "x",
            "LOG_FORMAT": "x", "GATEWAY_PORT": "x", "GATEWAY_TLS_CERT": "x", "AUTH_JWT_SECRET": "x",
            "METRICS_PORT": "x",
            "APNS_KEY": "x", "APNS_ENVIRONMENT": "x",
        ])
        func names(_ faults: [String]) -> [Substring] { faults.compactMap { $0.split(separator: " ").first } }
        let common = ["REDIS_URL", "DATABASE_URL", "DATABASE_CONNECTIONS", "CATALOG", "LOG_LEVEL", "LOG_FORMAT"]
        #expect(
            Set(names(readings.gatewayFaults).map(String.init))
                == Set(common + ["GATEWAY_PORT", "GATEWAY_TLS_CERT", "AUTH_JWT_SECRET", "APNS_ENVIRONMENT"]))
        #expect(
            Set(names(readings.dispatcherFaults).map(String.init))
                == Set(
                    common + ["METRICS_PORT", "AUTH_JWT_SECRET", "APNS_KEY_ID", "APNS_TEAM_ID", "APNS_TOPIC"]))
    }

    @Test(
        "no fault shows a secret",
        arguments: [
            ["AUTH_JWT_SECRET": "hunter2"], ["AUTH_JWT_SECRET_PREVIOUS": "hunter2"],
            ["AUTH_JWKS": "https://u:hunter2@keys.example"], ["REDIS_URL": "http://app:hunter2@redis"],
            ["REDIS_URL": "redis://u:hunter2@/1"],
            ["REDIS_URL": "redis://u:hunter2@h/x"], ["REDIS_URL": "redis://:hunter2@h:port"], ["REDIS_URL": "hunter2"],
            ["REDIS_URL": "redis://u:hunter2@h:99999999/x"], ["REDIS_URL": "redis+cluster://u:hunter2@h/3"],
            ["GATEWAY_PORT": "hunter2"], ["LOG_LEVEL": "hunter2"], ["DATABASE_URL": "postgresql://u:a@hunter2@h/x"],
        ]
    )
    func secrets(changes: [String: String]) {
        let reader = SettingsReader(Readings.least.merging(changes) { $1 })
        _ = GatewaySettings(reader)
        let faults = #expect(throws: SettingsFaults.self) { try reader.finish() }
        #expect(faults?.description.contains("hunter2") == false)
        #expect(faults?.description.hasPrefix("the configuration has a fault:\n  ") == true)
    }

    @Test("loads the target of a variable, and reports its failure as a fault of the setting")
    func loads() async {
        struct Broken: Error, CustomStringConvertible { let description = "the file is broken" }
        let reader = SettingsReader([:])
        #expect(await reader.load("A", isSet: true) { 7 } == 7)
        #expect(await reader.load("B", isSet: false) { 7 } == nil)
        #expect(await reader.load("C", isSet: true) { () throws -> Int in throw Broken() } == nil)
        #expect(Readings.faults(reader) == ["C cannot be used: the file is broken"])
    }

    @Test("names the cause alone: the secret that signs tokens, or the variable whose target cannot be used")
    func causes() {
        func token(_ variables: [String: String]) -> [String] {
            let reader = SettingsReader(variables)
            _ = AuthenticationSettings(reader, signs: true)
            return Readings.faults(reader)
        }
        #expect(token([:]) == ["AUTH_JWT_SECRET is missing; it signs tokens"])
        #expect(token(["AUTH_JWKS": "k.json"]) == ["AUTH_JWT_SECRET is missing; it signs tokens"])
        let short = "AUTH_JWT_SECRET must have at least 32 bytes (RFC 7518 section 3.2)"
        #expect(token(["AUTH_JWT_SECRET": "short"]) == [short])
        let reader = SettingsReader([:])
        reader.fault("SMTP_FROM", "is required with SMTP_URL")
        reader.unusable("SMTP_FROM", "is missing")
        reader.unusable("APPS", "one")
        reader.unusable("APPS", "two")
        let faults = ["SMTP_FROM is required with SMTP_URL", "APPS cannot be used: one", "APPS cannot be used: two"]
        #expect(Readings.faults(reader) == faults)
    }

    @Test("refuses to go on without a value that must be loaded")
    func missing() throws {
        let reader = SettingsReader([:])
        #expect(try reader.finish(7) == 7)
        #expect(throws: SettingsFaults.self) { try reader.finish(Int?.none) }
    }
}
