// Carillon · CertificateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import NIOSSL
import Support
import Testing

/// TLS on the gateway's own listener.
@Suite(.timeLimit(.minutes(10)))
struct CertificateTests {
    /// The configured files; the test replaces their content.
    private struct Files {
        let certificate: String
        let key: String

        func put(_ source: TestCertificate) throws {
            try Data(contentsOf: URL(fileURLWithPath: source.certificateFile))
                .write(to: URL(fileURLWithPath: self.certificate))
            try Data(contentsOf: URL(fileURLWithPath: source.keyFile)).write(to: URL(fileURLWithPath: self.key))
        }
    }

    /// A client context for a range of TLS versions.
    private static func trusting(
        _ certificate: TestCertificate,
        from oldest: TLSVersion = .tlsv12,
        upTo newest: TLSVersion? = nil
    ) throws -> NIOSSLContext {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.minimumTLSVersion = oldest
        configuration.maximumTLSVersion = newest
        configuration.trustRoots = .file(certificate.authorityFile)
        return try NIOSSLContext(configuration: configuration)
    }

    @Test("HTTP and sockets use TLS; a new certificate is loaded without dropping a connection")
    func reload() async throws {
        let first = try await TestCertificate.make()
        let second = try await TestCertificate.make()
        try await Stack.with { stack in
            let files = Files(certificate: stack.directory.file("tls.pem"), key: stack.directory.file("tls.key"))
            try files.put(first)
            let gateway = try await stack.startGateway(
                environment: ["GATEWAY_TLS_CERT": files.certificate, "GATEWAY_TLS_KEY": files.key])
            let token = Stack.token(user: "u")
            let old = try await TestSocket.open(port: gateway.port, token: token, tls: try Self.trusting(first))
            _ = try await old.first("sync")

            var configuration = TransferConfiguration()
            configuration.caFile = first.authorityFile
            let http = try TransferClient(configuration: configuration, logger: TestLog.logger)
            let answer = await http.perform(.init(.get, url: "https://localhost:\(gateway.port)/healthz"))
            guard case .answered(let response) = answer else {
                Issue.record("no answer over https: \(answer)")
                return await http.shutdown()
            }
            #expect(response.status == 200)
            #expect(response.header("strict-transport-security") == "max-age=31536000")
            await http.shutdown()

            // A file without a certificate: the old one stays in use. SIGHUP saves the wait.
            try Data("nonsense".utf8).write(to: URL(fileURLWithPath: files.certificate))
            gateway.process.send(SIGHUP)
            try await eventually("the fault is logged") {
                gateway.process.errors().contains("cannot use the certificate")
            }
            let still = try await TestSocket.open(port: gateway.port, token: token, tls: try Self.trusting(first))
            _ = try await still.first("sync")

            try files.put(second)
            try await eventually("it is reloaded") { gateway.process.errors().contains("certificate reloaded") }
            let lines = gateway.process.errors().split(separator: "\n").filter {
                $0.contains("cannot use the certificate") || $0.contains("certificate reloaded")
            }
            #expect(lines.allSatisfy { $0.contains("node.id") })
            let new = try await TestSocket.open(port: gateway.port, token: token, tls: try Self.trusting(second))
            _ = try await new.first("sync")
            // The old connection still works.
            try await old.send(json: #"{"type":"unread","ref":1}"#)
            _ = try await old.first("unread")
            let stale = try? await TestSocket.open(port: gateway.port, token: token, tls: try Self.trusting(first))
            try await eventually("a client that trusts only the old certificate is refused") { stale?.isClosed ?? true }
            #expect(stale?.status == nil)
        }
    }

    @Test("TLS 1.2 and 1.3 work, older versions do not")
    func versions() async throws {
        let certificate = try await TestCertificate.make()
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(
                environment: ["GATEWAY_TLS_CERT": certificate.certificateFile, "GATEWAY_TLS_KEY": certificate.keyFile])
            let token = Stack.token(user: "u")
            for version in [TLSVersion.tlsv12, .tlsv13] {
                let tls = try Self.trusting(certificate, from: version, upTo: version)
                let socket = try await TestSocket.open(port: gateway.port, token: token, tls: tls)
                _ = try await socket.first("sync")
            }
            let old = try Self.trusting(certificate, from: .tlsv1, upTo: .tlsv11)
            let socket = try? await TestSocket.open(port: gateway.port, token: token, tls: old)
            try await eventually("a client that speaks only TLS 1.1 is refused") { socket?.isClosed ?? true }
            #expect(socket?.status == nil)
        }
    }

    @Test("a client that ignores the close is offline after six seconds")
    func silent() async throws {
        let certificate = try await TestCertificate.make()
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: [
                "GATEWAY_TLS_CERT": certificate.certificateFile, "GATEWAY_TLS_KEY": certificate.keyFile,
                "USER_CONNECTIONS": "1",
            ])
            let tls = try Self.trusting(certificate)
            // A busy machine can delay any single one, so the fastest of ten counts.
            var durations: [Duration] = []
            repeat {
                let user = "user-\(durations.count)"
                let token = Stack.token(user: user)
                let silent = try await TestSocket.open(port: gateway.port, token: token, tls: tls)
                _ = try await silent.first("sync")
                try await silent.setReading(false)
                let start = ContinuousClock.now
                let newer = try await TestSocket.open(port: gateway.port, token: token, tls: tls)
                _ = try await newer.first("sync")
                try await eventually("it is offline") {
                    try await stack.connection.send("HLEN", .text("carillon:presence:{\(user)}")).integer() == 1
                }
                durations.append(ContinuousClock.now - start)
                #expect(!newer.isClosed)
                await silent.close()
                await newer.close()
                // Five seconds for the close frame, one for TLS, two for a busy machine.
            } while durations.allSatisfy { $0 >= .seconds(8) } && durations.count < 10
            #expect(durations.contains { $0 < .seconds(8) }, "\(durations)")
            #expect(durations.allSatisfy { $0 >= .seconds(5) }, "\(durations)")
        }
    }

    @Test("an early SIGHUP does not end a gateway")
    func early() async throws {
        try await Stack.with { stack in
            let process = try await stack.spawn(
                "gateway", ["serve"], name: "early",
                environment: ["DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"])
            try await eventually("it waits for PostgreSQL") { process.errors().contains("postgres connection failed") }
            process.send(SIGHUP)
            // Signals are handled in the order of their numbers, so SIGHUP comes before SIGTERM.
            #expect(try await process.stop() == .code(0))
        }
    }
}
