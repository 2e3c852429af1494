// Carillon · SettingsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Logging
import Operations
import Testing

@Suite("Settings", .timeLimit(.minutes(10)))
struct SettingsTests {
    @Test("The least starts both services, with the defaults that the documents name")
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
        #expect(gateway.common.logLevel == .info)
        #expect(gateway.common.logFormat == .text)
        #expect(try gateway.common.redisAddress() == RedisAddress(url: "redis://127.0.0.1:6379/0"))
        #expect(readings.dispatcher.metricsHost == "127.0.0.1")
        #expect(readings.dispatcher.metricsPort == 9_091)
        #expect(readings.dispatcher.defaultApp.providers.isEmpty)
        #expect(readings.dispatcher.providerCertificateAuthority == nil)
    }

    @Test("Every variable of the gateway finds its place")
    func gateway() throws {
        let readings = Readings([
            "REDIS_URL": "rediss://app:pw@redis:6380/3", "REDIS_CA": "redis.pem", "DATABASE_CONNECTIONS": "9",
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
        #expect(try settings.common.redisAddress() == RedisAddress(url: "rediss://app:pw@redis:6380/3"))
        #expect(settings.common.redisCertificateAuthority == "redis.pem")
        #expect(settings.common.database == "postgresql://app@db/carillon")
        #expect(settings.common.databaseConnections == 9)
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
        #expect(settings.socketIORecovery == .on)
    }

    @Test(
        "A key set is a file, or a URL: https anywhere, http on this machine",
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

    @Test("Every variable of the dispatcher finds its place")
    func dispatcher() throws {
        let readings = Readings([
            "METRICS_HOST": "0.0.0.0", "METRICS_PORT": "0", "FCM_CREDENTIALS": "account.json",
            "FCM_ENDPOINT": "https://f", "FCM_CLICK_ACTION": "category",
            "APNS_KEY": "key.p8", "APNS_KEY_ID": "K", "APNS_TEAM_ID": "T", "APNS_TOPIC": "org.example",
            "APNS_ENVIRONMENT": "sandbox", "APNS_ENDPOINT": "https://a", "PROVIDER_CA": "ca.pem",
            "PUSH_SHAPE": "breaking-news", "APPS": "apps.yaml",
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
        #expect(settings.defaultApp.shape == .named("breaking-news"))
        #expect(settings.appsFile == "apps.yaml")
        #expect(settings.providerCertificateAuthority == "ca.pem")
    }

    @Test("A provider is off until its credential is named")
    func providersOff() {
        #expect(Readings(["FCM_ENDPOINT": "https://f", "APNS_KEY_ID": "K"]).dispatcher.defaultApp.providers.isEmpty)
    }

    @Test("An empty variable is one that is not set")
    func empty() {
        #expect(Readings(["GATEWAY_PORT": "", "LOG_LEVEL": ""]).gatewayFaults.isEmpty)
        #expect(Readings(["CATALOG": ""]).gatewayFaults.count == 1)
    }

    @Test("Variables are read from a file, where the environment leaves them open")
    func file() async throws {
        let path = FileManager.default.temporaryDirectory.appending(
            path: "carillon-settings-\(UInt64.random(in: 0...(.max)))")
        try Data("GATEWAY_PORT=81\n# a comment\nCARILLON_TEST_NAME=from the file\n".utf8).write(to: path)
        defer { try? FileManager.default.removeItem(at: path) }
        let reader = try await SettingsReader.process(file: path.path)
        #expect(reader.text("CARILLON_TEST_NAME") == "from the file")
        #expect(reader.text("PATH") == ProcessInfo.processInfo.environment["PATH"])
        let fault = await #expect(throws: SettingsFaults.self) {
            _ = try await SettingsReader.process(file: "/nowhere/env")
        }
        #expect(fault?.faults == ["--config: /nowhere/env cannot be read"])
    }
}
