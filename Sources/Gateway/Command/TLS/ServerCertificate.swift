// Carillon · ServerCertificate.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import NIOSSL
import ServiceLifecycle
import Synchronization
import UnixSignals

/// The listener's certificate, read again on SIGHUP.
///
/// New connections get the new one; those that are up go on with what they have.
final class ServerCertificate: Service {
    private let certificateFile: String
    private let keyFile: String
    private let current: Mutex<NIOSSLContext>
    /// Made when it is needed, as the output of logs is chosen after the configuration was read.
    private var logger: Logger { Logger(label: "carillon.certificate") }

    /// - Throws: what is wrong with the files.
    init(certificateFile: String, keyFile: String) throws {
        self.certificateFile = certificateFile
        self.keyFile = keyFile
        self.current = Mutex(try Self.load(certificateFile, keyFile))
    }

    /// What the next handshake is made with.
    var context: NIOSSLContext { self.current.withLock { $0 } }

    func run() async throws {
        for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() { self.reload() }
    }

    private func reload() {
        do {
            let context = try Self.load(self.certificateFile, self.keyFile)
            self.current.withLock { $0 = context }
            self.logger.notice("certificate read again")
        } catch {
            self.logger.error(
                "certificate cannot be used; the one before stays",
                metadata: ["error": "\(error)", "file": "\(self.certificateFile)"]
            )
        }
    }

    /// - Throws: ``CertificateFault``.
    static func load(_ certificateFile: String, _ keyFile: String) throws -> NIOSSLContext {
        let certificates = try Self.read(certificateFile) { try NIOSSLCertificate.fromPEMFile(certificateFile) }
        let key = try Self.read(keyFile) { try NIOSSLPrivateKey(file: keyFile, format: .pem) }
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: certificates.map { .certificate($0) },
            privateKey: .privateKey(key)
        )
        // TLS 1.0 and 1.1 are not to be used any more (RFC 8996).
        configuration.minimumTLSVersion = .tlsv12
        // Making the context checks that the key is the certificate's.
        return try Self.read("GATEWAY_TLS_KEY") { try NIOSSLContext(configuration: configuration) }
    }

    private static func read<Value>(_ place: String, _ work: () throws -> Value) throws -> Value {
        do {
            return try work()
        } catch {
            throw CertificateFault(description: "\(place): \(NetworkFault.words(error))")
        }
    }
}

/// Why a certificate or its key cannot be used.
struct CertificateFault: Error, CustomStringConvertible {
    let description: String
}
