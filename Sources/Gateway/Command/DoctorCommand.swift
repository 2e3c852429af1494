// Carillon · DoctorCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import FoundationEssentials
import HTTP
import Logging
import NIOSSL
import Operations

/// `gateway doctor`.
struct DoctorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Checks what breaks in practice and tells you how to fix it.",
        discussion: """
            Checks the settings, the catalog, Redis (version, eviction, persistence,
            memory), PostgreSQL (version, migrations, connections), the clocks of all
            three, file limits and the listen backlog, time-zone data, the TLS
            certificate, the key set and the Web Push key. It changes nothing and does
            not need or disturb a running gateway. Exits with 1 if a check fails, with 78
            if the settings are faulty.

            Examples:
              gateway doctor
              gateway doctor --config /etc/carillon/gateway.env --offline
              gateway doctor --json | jq '.checks[] | select(.outcome != "ok")'
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Skips the key set's URL.")
    var offline = false

    func run() async throws {
        try await GatewayCommand.run {
            let reader = try self.options.reader()
            let settings = GatewaySettings(reader)
            _ = GatewayProtection(settings, reader: reader)
            _ = await reader.load("APPS", isSet: true) { try settings.devices.rules() }
            var report = await Examination.program(
                .gateway, reader, settings.common,
                // One more for migrations.
                needed: settings.common.databaseConnections + 1,
                clocks: ClockFacts(tolerable: max(settings.authentication.skew, .seconds(2))))
            if let url = settings.readDatabase { report.add([await Examination.standby(url)]) }
            report.add(self.certificate(settings))
            report.add(await self.keySet(settings.authentication))
            report.add(self.webPushKey(settings))
            let devices = settings.devices
            let files = [self.options.config, settings.tlsKey, devices.webPushKey, devices.appsFile].compactMap(\.self)
            report.add(files.compactMap { FileFacts(path: $0).finding })
            try report.end(self.output)
        }
    }

    private func certificate(_ settings: GatewaySettings) -> [Finding] {
        guard let certificateFile = settings.tlsCertificate, let keyFile = settings.tlsKey else {
            return [Finding(.ok, "tls certificate", "none: this gateway serves plain HTTP")]
        }
        do {
            // Making the context checks that the key fits the certificate.
            _ = try ServerCertificate.load(certificateFile, keyFile)
            guard let certificate = try NIOSSLCertificate.fromPEMFile(certificateFile).first else { return [] }
            let facts = CertificateFacts(
                notBefore: Timestamp(seconds: Int64(certificate.notValidBefore)),
                notAfter: Timestamp(seconds: Int64(certificate.notValidAfter))
            )
            return [facts.finding(now: .now())]
        } catch {
            let remedy =
                "set GATEWAY_TLS_CERT to a PEM file with the chain, GATEWAY_TLS_KEY to the key of its first certificate"
            return [Finding(.fail, "tls certificate", "cannot be used: \(error)", fix: remedy)]
        }
    }

    private func keySet(_ settings: AuthenticationSettings) async -> [Finding] {
        var findings: [Finding] = []
        let remedy = "set AUTH_JWKS to a JWKS document with keys for RS256 or ES256; docs/security.md"
        if let authorities = Examination.authorities("AUTH_JWKS_CA", path: settings.keySetCertificateAuthority) {
            findings.append(authorities)
        }
        if settings.acceptsAnyAudience {
            let detail = "AUTH_JWKS without AUTH_AUDIENCE: tokens issued for other apps are accepted"
            let remedy = "set AUTH_AUDIENCE to the issuer's name for this app; docs/security.md"
            findings.append(Finding(.warn, "token audience", detail, fix: remedy))
        }
        do {
            let document: [UInt8]
            switch settings.keySet {
            case nil: return findings
            case .file(let path): document = try KeySetReader.file(path)
            case .url(let url):
                if self.offline { return findings + [Finding(.skipped, "key set", "skipped by --offline")] }
                var configuration = TransferConfiguration()
                configuration.caFile = settings.keySetCertificateAuthority
                configuration.allowPlainHTTP = url.lowercased().hasPrefix("http://")
                let logger = Logger(label: "carillon.doctor") { _ in SwiftLogNoOpLogHandler() }
                let client = try TransferClient(configuration: configuration, logger: logger)
                document = try await KeySetReader.url(url, client: client)
                await client.shutdown()
            }
            let keys = try KeySet(document)
            return findings + [Finding(.ok, "key set", "\(keys.count) keys")]
        } catch {
            return findings + [Finding(.fail, "key set", "\(error)", fix: remedy)]
        }
    }

    private func webPushKey(_ settings: GatewaySettings) -> [Finding] {
        guard let path = settings.devices.webPushKey else { return [] }
        let remedy = "set VAPID_KEY to the file of a P-256 key; docs/providers.md#web-push"
        guard let file = FileManager.default.contents(atPath: path) else {
            return [Finding(.fail, "web push key", "\(path) cannot be read", fix: remedy)]
        }
        do {
            _ = try VAPIDKey(file: Array(file))
            return [Finding(.ok, "web push key", path)]
        } catch {
            return [Finding(.fail, "web push key", "cannot be used: \(error)", fix: remedy)]
        }
    }
}
