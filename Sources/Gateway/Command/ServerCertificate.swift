// Carillon · ServerCertificate.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import HummingbirdCore
import Logging
import NIOCore
import NIOSSL
import ServiceLifecycle
import Sockets
import Synchronization
import UnixSignals

/// The listener's certificate.
///
/// After a reload, new connections get the new certificate; open ones keep theirs.
final class ServerCertificate: Sendable {
    private let certificateFile: String
    private let keyFile: String
    private let current: Mutex<NIOSSLContext>

    /// - Throws: The fault of the files.
    init(certificateFile: String, keyFile: String) throws {
        self.certificateFile = certificateFile
        self.keyFile = keyFile
        self.current = Mutex(try Self.load(certificateFile, keyFile))
    }

    /// The context of the next handshake.
    var context: NIOSSLContext { self.current.withLock { $0 } }

    /// Reads the files again; keeps the previous certificate if they are faulty.
    func reload(logger: Logger) {
        do {
            let context = try Self.load(self.certificateFile, self.keyFile)
            self.current.withLock { $0 = context }
            logger.notice("certificate reloaded")
        } catch {
            logger.error(
                "cannot use the certificate; keeping the previous one",
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
        // TLS 1.0 and 1.1 are deprecated (RFC 8996).
        configuration.minimumTLSVersion = .tlsv12
        // Making the context checks that the key fits the certificate.
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

/// Reloads a certificate on SIGHUP.
struct CertificateReload: Service {
    let certificate: ServerCertificate
    let logger: Logger

    func run() async throws {
        for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() {
            self.certificate.reload(logger: self.logger)
        }
    }
}

/// The reason why a certificate or its key cannot be used.
struct CertificateFault: Error, CustomStringConvertible {
    let description: String
}

/// A server channel behind TLS; each connection gets the current certificate.
struct CertificateChannel: HTTPChannelHandler {
    let door: DoorChannel
    let certificate: ServerCertificate

    var responder: HTTPChannelHandler.Responder { self.door.responder }

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<DoorChannel.Value> {
        do {
            try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: self.certificate.context))
        } catch {
            return channel.eventLoop.makeFailedFuture(error)
        }
        return self.door.setup(channel: channel, logger: logger)
    }

    func handle(value: DoorChannel.Value, logger: Logger) async {
        await self.door.handle(value: value, logger: logger)
    }
}
