// Carillon · SettingsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Logging
import Testing

@testable import Operations

/// The settings of both programs from given variables, with their faults.
struct Readings {
    /// The required variables of both programs.
    static let least = [
        "DATABASE_URL": "postgresql://app@db/carillon", "CATALOG": "catalog.yaml",
        "AUTH_JWT_SECRET": "0123456789abcdef0123456789abcdef",
    ]

    let gateway: GatewaySettings
    let gatewayFaults: [String]
    let dispatcher: DispatcherSettings
    let dispatcherFaults: [String]

    /// - Parameter changes: variables to add or replace; nil removes one.
    init(_ changes: [String: String?] = [:]) {
        var variables = Self.least
        for (name, value) in changes { variables[name] = value }
        let forGateway = SettingsReader(variables)
        self.gateway = GatewaySettings(forGateway)
        self.gatewayFaults = Self.faults(forGateway)
        let forDispatcher = SettingsReader(variables)
        self.dispatcher = DispatcherSettings(forDispatcher)
        self.dispatcherFaults = Self.faults(forDispatcher)
    }

    static func faults(_ reader: SettingsReader) -> [String] {
        do throws(SettingsFaults) {
            try reader.finish()
            return []
        } catch {
            return error.faults
        }
    }
}

@Suite("Settings", .timeLimit(.minutes(10)))
struct SettingsTests {
    @Test("both programs start with the required settings and the documented defaults")
    func defaults() throws {
        let readings = Readings()
        #expect(readings.gatewayFaults.isEmpty && readings.dispatcherFaults.isEmpty)
        let gateway = readings.gateway
        #expect(gateway.host == "127.0.0.1")
        #expect(gateway.port == 8_080)
        #expect(gateway.publicURL == nil && gateway.tlsCertificate == nil && gateway.tlsKey == nil)
        #expect(gateway.authentication.userClaim == "sub")
        #expect(gateway.authentication.issuer == nil && gateway.authentication.audience == nil)
        #expect(gateway.common.databaseConnections == 4)
        #expect(gateway.common.lease == .seconds(15))
        #expect(gateway.common.redisTimeout == .seconds(5) && gateway.common.databaseTimeout == .seconds(10))
        #expect(gateway.common.logLevel == .info)
        #expect(gateway.common.logFormat == .text)
        #expect(try gateway.devices.rules().limits.limit(of: "default") == 20)
        #expect(try gateway.common.redis.address == RedisAddress(url: "redis://127.0.0.1:6379/0"))
        #expect(readings.dispatcher.metricsHost == "127.0.0.1")
        #expect(readings.dispatcher.metricsPort == 9_091)
        #expect(readings.dispatcher.defaultApp.providers.isEmpty)
        #expect(readings.dispatcher.providerCertificateAuthority == nil)
    }

    @Test("reads every variable of the gateway")
    func gateway() throws {
        let readings = Readings([
            "REDIS_URL": "rediss://app:pw@redis:6380/3", "REDIS_CA": "redis.pem", "DATABASE_CONNECTIONS": "9",
            "DATABASE_READ_URL": "postgresql://replica/db",
            "LEASE_SECONDS": "6",
            "LOG_LEVEL": "debug", "LOG_FORMAT": "json", "GATEWAY_HOST": "0.0.0.0", "GATEWAY_PORT": "0",
            "PUBLIC_URL": "https://n.example", "GATEWAY_TLS_CERT": "c.pem", "GATEWAY_TLS_KEY": "k.pem",
            "AUTH_JWKS": "keys.json", "AUTH_ISSUER": "iss", "AUTH_AUDIENCE": "aud", "AUTH_USER_CLAIM": "uid",
            "APNS_ENVIRONMENT": "sandbox",
            "AUTH_JWT_SECRET_PREVIOUS": "fedcba9876543210fedcba9876543210", "AUTH_JWKS_CA": "jwks.pem",
            "AUTH_CLOCK_SKEW": "5", "AUTH_COOKIE": "session",
            "ALLOWED_ORIGINS": "https://App.example, http://localhost:3000",
            "SOCKETIO_RECOVERY": "on",
        ])
        #expect(readings.gatewayFaults.isEmpty)
        let settings = readings.gateway
        #expect(try settings.common.redis.address == RedisAddress(url: "rediss://app:pw@redis:6380/3"))
        #expect(settings.common.redis.certificateAuthority == "redis.pem")
        #expect(settings.common.database == "postgresql://app@db/carillon")
        #expect(settings.common.databaseConnections == 9 && settings.readDatabase == "postgresql://replica/db")
        #expect(settings.common.lease == .seconds(6))
        #expect(settings.common.redisTimeout == .seconds(2) && settings.common.databaseTimeout == .seconds(4))
        #expect(settings.common.catalog == "catalog.yaml")
        #expect(settings.common.logLevel == .debug)
        #expect(settings.common.logFormat == .json)
        #expect(settings.host == "0.0.0.0")
        #expect(settings.port == 0)
        #expect(settings.publicURL == "https://n.example")
        #expect(settings.tlsCertificate == "c.pem" && settings.tlsKey == "k.pem")
        #expect(settings.authentication.secrets.first == Readings.least["AUTH_JWT_SECRET"])
        #expect(settings.authentication.secrets.dropFirst() == ["fedcba9876543210fedcba9876543210"])
        #expect(settings.authentication.keySetCertificateAuthority == "jwks.pem")
        #expect(settings.authentication.skew == .seconds(5))
        #expect(settings.authentication.cookie == "session")
        #expect(settings.protection.allowedOrigins == ["https://app.example", "http://localhost:3000"])
        #expect(settings.authentication.keySet == .file("keys.json"))
        #expect(settings.authentication.issuer == "iss" && settings.authentication.audience == "aud")
        #expect(settings.authentication.userClaim == "uid")
        #expect(settings.apnsEnvironment == .sandbox)
        #expect(settings.hasSocketIORecovery)
    }

    @Test("limits a user's devices by app, and by DEVICES_PER_USER for apps without a limit")
    func devices() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "apps-\(UUID()).yaml")
        try "apps: {tablet: {devices: 3}, phone: {}}".write(to: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: file) }
        let readings = Readings(["DEVICES_PER_USER": "5", "APPS": file.path])
        #expect(readings.gatewayFaults.isEmpty)
        let limits = try readings.gateway.devices.rules().limits
        #expect(["default", "phone", "tablet"].map { limits.limit(of: $0) } == [5, 5, 3])
    }

    @Test(
        "a key set is a file or a URL: https anywhere, http on this machine",
        arguments: [
            ("/etc/keys.json", KeySetLocation.file("/etc/keys.json")),
            ("keys:1.json", .file("keys:1.json")),
            ("https://id.example/.well-known/jwks.json", .url("https://id.example/.well-known/jwks.json")),
            ("http://127.0.0.1:8080/k", .url("http://127.0.0.1:8080/k")),
            ("http://localhost/k", .url("http://localhost/k")), ("HTTP://[::1]:1/", .url("HTTP://[::1]:1/")),
        ]
    )
    func keySet(text: String, location: KeySetLocation) {
        let readings = Readings(["AUTH_JWT_SECRET": nil, "AUTH_JWKS": text])
        #expect(readings.gatewayFaults.isEmpty)
        #expect(readings.gateway.authentication.keySet == location)
    }

    @Test("reads every variable of the dispatcher")
    func dispatcher() throws {
        let readings = Readings([
            "METRICS_HOST": "0.0.0.0", "METRICS_PORT": "0", "FCM_CREDENTIALS": "account.json",
            "FCM_ENDPOINT": "https://f", "FCM_CLICK_ACTION": "category",
            "APNS_KEY": "key.p8", "APNS_KEY_ID": "K", "APNS_TEAM_ID": "T", "APNS_TOPIC": "org.example",
            "APNS_ENDPOINT": "https://a", "PROVIDER_CA": "ca.pem",
            "PUSH_SHAPE": "shape.yaml", "APPS": "apps.yaml",
        ])
        #expect(readings.dispatcherFaults.isEmpty)
        let settings = readings.dispatcher
        #expect(settings.metricsHost == "0.0.0.0" && settings.metricsPort == 0)
        #expect(settings.defaultApp.name == "default")
        #expect(
            settings.defaultApp.providers["fcm"] == [
                "credentials": "account.json", "endpoint": "https://f", "click_action": "category",
            ])
        #expect(
            settings.defaultApp.providers["apns"] == [
                "key": "key.p8", "key_id": "K", "team_id": "T", "topic": "org.example", "endpoint": "https://a",
            ])
        #expect(settings.defaultApp.shape == .file("shape.yaml"))
        #expect(settings.appsFile == "apps.yaml")
        #expect(settings.providerCertificateAuthority == "ca.pem")
    }

    @Test("a provider is off without its credential")
    func providersOff() {
        #expect(Readings(["FCM_ENDPOINT": "https://f", "APNS_KEY_ID": "K"]).dispatcher.defaultApp.providers.isEmpty)
    }

    @Test("an empty variable counts as unset")
    func empty() {
        #expect(Readings(["GATEWAY_PORT": "", "LOG_LEVEL": ""]).gatewayFaults.isEmpty)
        #expect(Readings(["CATALOG": ""]).gatewayFaults.count == 1)
    }

    @Test("reads a file's variables, but the environment takes precedence")
    func file() throws {
        let path = FileManager.default.temporaryDirectory.appending(
            path: "carillon-settings-\(UInt64.random(in: 0...(.max)))")
        let text = "GATEWAY_PORT=81\n# a comment\nCARILLON_TEST_NAME=\"from the file\"\nexport A=1\n"
        try Data(text.utf8).write(to: path)
        defer { try? FileManager.default.removeItem(at: path) }
        let reader = try SettingsReader.process(file: path.path)
        #expect(reader.text("CARILLON_TEST_NAME") == "from the file")
        #expect(reader.text("PATH") == ProcessInfo.processInfo.environment["PATH"])
        #expect(Readings.faults(reader) == ["--config: line 4 of \(path.path) begins with export; remove that word"])
        let fault = #expect(throws: SettingsFaults.self) {
            _ = try SettingsReader.process(file: "/nowhere/env")
        }
        #expect(fault?.faults == ["--config: /nowhere/env cannot be read"])
    }

    @Test("finds names in a file that resemble a setting of either program, and leaves others alone")
    func misspellings() throws {
        let script = try String(contentsOfFile: "deploy/lib/environment.sh", encoding: .utf8)
        let block = try #require(script.split(separator: "ENVIRONMENT_NAMES='").dropFirst().first)
        let others = block.prefix { $0 != "'" }.split(whereSeparator: \.isWhitespace)
        #expect(others.count > 20)
        let settings = [
            "REDIS_UR", "GATEWAY_PROT", "metrics_port", "GATEWAY_PORT", "INBOX_DAYS", "POSTGRES_PASSWORD",
            "REDIS_PORT", "REDIS_DB",
        ]
        let lines = settings + others.map { String($0) }
        let path = FileManager.default.temporaryDirectory.appending(
            path: "carillon-settings-\(UInt64.random(in: 0...(.max)))")
        try Data(lines.map { "\($0)=1\n" }.joined().utf8).write(to: path)
        defer { try? FileManager.default.removeItem(at: path) }
        let found = try SettingsReader.process(file: path.path).misspellings
        #expect(
            found.map { "\($0.name), \($0.meant)" } == [
                "GATEWAY_PROT, GATEWAY_PORT", "REDIS_UR, REDIS_URL", "metrics_port, METRICS_PORT",
            ])
    }

    @Test("reads a file's lines as systemd does, and finds lines that only a shell reads")
    func lines() {
        let text = "A=\"x y\"\r\nB='z'\n ; C=1\nD=a#b\n\nexport E=1\nF=\"\nG = 2 \nH=\"a'\n#I=1\nJ\n=K\nexport\tL=1"
        let file = SettingsFile(text)
        #expect(file.variables == ["A": "x y", "B": "z", "D": "a#b", "F": "\"", "G": "2", "H": "\"a'"])
        #expect(file.exports == [6, 13])
    }

    @Test(
        "accepts connection strings with several hosts, IPv6, sockets, encoded passwords and keywords",
        arguments: [
            "postgresql://u:p%40a%2Fb@h:5432/db", "postgres://u:p?#[:,@h1:1,h2:65535,[::1]:3,[::1]/db?options=b@c",
            "postgresql:///db?host=/run/postgresql", "postgresql://u@/db", "postgresql://%2Frun%2Fpg/db",
            "postgresql://h", "postgresql://h:/db", "host=h password=a@b/c",
        ]
    )
    func databases(text: String) {
        let readings = Readings(["DATABASE_URL": text, "DATABASE_READ_URL": text])
        #expect(readings.gatewayFaults.isEmpty)
        #expect(readings.gateway.common.database == text && readings.gateway.readDatabase == text)
    }
}

@Suite("Dispatcher settings")
struct DispatcherSettingsTests {
    @Test(
        "parses outbox databases separated by commas or spaces, with several hosts",
        arguments: [
            ("postgresql://a@h/x", ["postgresql://a@h/x"]),
            ("postgresql://a@h/x,postgres://b@i/y", ["postgresql://a@h/x", "postgres://b@i/y"]),
            ("postgresql://a@h/x  postgres://b@i/y", ["postgresql://a@h/x", "postgres://b@i/y"]),
            ("postgresql://a@h:1,i:2/x, postgres://b@i/y", ["postgresql://a@h:1,i:2/x", "postgres://b@i/y"]),
        ]
    )
    func databases(text: String, urls: [String]) {
        let readings = Readings(["OUTBOX_DATABASE_URLS": text])
        #expect(readings.dispatcherFaults.isEmpty)
        #expect(readings.dispatcher.outboxDatabases == urls)
    }

    @Test(
        "refuses other texts without showing them",
        arguments: ["host=h password=word", "mysql://a:word@h/x", "word"]
    )
    func noDatabases(text: String) {
        let faults = Readings(["OUTBOX_DATABASE_URLS": text]).dispatcherFaults
        #expect(faults.count == 1)
        #expect(faults.allSatisfy { $0.hasPrefix("OUTBOX_DATABASE_URLS must be URLs") && !$0.contains("word") })
    }

    @Test("defaults are as documented; zero turns the overflow off")
    func defaults() {
        let settings = Readings().dispatcher
        #expect(settings.outboxDatabases.isEmpty)
        #expect(settings.common.eventsLength == 1_000_000)
        #expect(!settings.common.allowsPrivateWebhooks)
        let retention = settings.retention
        #expect([retention.audit, retention.inbox, retention.devices].allSatisfy { $0 == .seconds(90 * 86_400) })
        #expect([retention.tombstones, retention.deadLetters].allSatisfy { $0 == .seconds(30 * 86_400) })
        #expect(settings.overflowBacklog == 10_000 && settings.overflowShare == 1_000)
        #expect(Readings(["OVERFLOW_BACKLOG": "0", "EVENTS": "off"]).dispatcher.overflowBacklog == nil)
        #expect(Readings(["EVENTS": "off"]).gateway.common.eventsLength == nil)
    }
}

@Suite("Protection settings", .timeLimit(.minutes(10)))
struct ProtectionSettingsTests {
    @Test("by default only the gateway's own pages open sockets, and users have generous limits")
    func defaults() {
        let protection = Readings([:]).gateway.protection
        #expect(protection.allowedOrigins == [])
        #expect(protection.trustedProxies.isEmpty)
        #expect(protection.userConnections == 32 && protection.addressConnections == nil)
        #expect(protection.userCalls == 50 && protection.userMessages == 50)
    }

    @Test("reads every variable; zero removes a limit")
    func places() {
        let readings = Readings([
            "ALLOWED_ORIGINS": "https://App.example.com, http://localhost:3000", "TRUSTED_PROXIES": "10.0.0.0/8, ::1",
            "USER_CONNECTIONS": "3", "ADDRESS_CONNECTIONS": "4", "USER_CALLS_PER_SECOND": "0",
            "USER_MESSAGES_PER_SECOND": "6",
        ])
        #expect(readings.gatewayFaults.isEmpty)
        let protection = readings.gateway.protection
        #expect(protection.allowedOrigins == ["https://app.example.com", "http://localhost:3000"])
        #expect(protection.trustedProxies == ["10.0.0.0/8", "::1"])
        #expect(protection.userConnections == 3 && protection.addressConnections == 4)
        #expect(protection.userCalls == nil && protection.userMessages == 6)
        #expect(Readings(["ALLOWED_ORIGINS": "*"]).gateway.protection.allowedOrigins == nil)
    }

    @Test(
        "origins may have the scheme of an app or a socket; these have no default port",
        arguments: ["capacitor://localhost", "ionic://localhost:80", "wss://app.example:443", "x-app+1.0://a"])
    func schemes(origin: String) {
        let readings = Readings(["ALLOWED_ORIGINS": "https://app.example,\(origin)"])
        #expect(readings.gatewayFaults.isEmpty)
        #expect(readings.gateway.protection.allowedOrigins == ["https://app.example", origin])
    }

    @Test(
        "origins are those that browsers send, which leave out the scheme's default port",
        arguments: [
            ("https://App.example.com:443", "https://app.example.com"), ("http://localhost:80", "http://localhost"),
            ("https://app.example.com:80", "https://app.example.com:80"), ("http://[::1]:8080", "http://[::1]:8080"),
        ])
    func origins(written: String, origin: String) {
        #expect(Readings(["ALLOWED_ORIGINS": written]).gateway.protection.allowedOrigins == [origin])
        #expect(Readings(["PUBLIC_URL": "\(written)/path"]).gateway.publicOrigin == origin)
    }

    @Test(
        "a malformed variable is a fault",
        arguments: [
            ("ALLOWED_ORIGINS", "https://*.example.com"), ("ALLOWED_ORIGINS", "https://a.example,*"),
            ("ALLOWED_ORIGINS", "app.example.com"), ("ALLOWED_ORIGINS", "https://a.example/path"),
            ("ALLOWED_ORIGINS", "://a.example"), ("ALLOWED_ORIGINS", "*://a.example"),
            ("ALLOWED_ORIGINS", "1a://localhost"), ("ALLOWED_ORIGINS", "capacitor://"),
            ("USER_CONNECTIONS", "0"), ("ADDRESS_CONNECTIONS", "-1"), ("USER_CALLS_PER_SECOND", "many"),
        ]
    )
    func faults(name: String, text: String) {
        let faults = Readings([name: text]).gatewayFaults
        #expect(faults.count == 1 && faults.first?.hasPrefix("\(name) must be ") == true, "\(faults)")
    }
}

struct TraceSettingsTests {
    @Test("without an endpoint there is no collector; headers and service name belong to it")
    func collector() throws {
        #expect(Readings(["OTEL_SERVICE_NAME": "mine"]).gateway.common.traces == nil)
        let readings = Readings([
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example/otlp/", "OTEL_SERVICE_NAME": "mine",
            "OTEL_EXPORTER_OTLP_HEADERS": "X-Key=a=b, x-tenant=c, authorization=Basic%20d",
        ])
        #expect(readings.gatewayFaults.isEmpty && readings.dispatcherFaults.isEmpty)
        for traces in [readings.gateway.common.traces, readings.dispatcher.common.traces] {
            let traces = try #require(traces)
            #expect(traces.endpoint == "https://collector.example/otlp")
            #expect(traces.service == "mine")
            #expect(traces.headers.map(\.name) == ["x-key", "x-tenant", "authorization"])
            #expect(traces.headers.map(\.value) == ["a=b", "c", "Basic d"])
        }
    }

    @Test(
        "a malformed variable is reported without its value",
        arguments: [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://hunter2"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@host"), ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "=hunter2"), ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%2"),
        ]
    )
    func faults(name: String, value: String) {
        let faults = Readings([name: value]).gatewayFaults
        #expect(faults.count == 1)
        #expect(faults.first?.hasPrefix(name) == true)
        #expect(!faults.description.contains("hunter2"))
    }
}
