// Carillon · ServerCertificate.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import FoundationEssentials
import HummingbirdCore
import Logging
import NIOCore
import NIOSSL
import Sockets
import Synchronization

/// The listener's certificate.
///
/// After a reload, new connections get the new certificate; open ones keep theirs.
final class ServerCertificate: Sendable {
    private struct State {
        var context: NIOSSLContext
        /// The contents of both files when they were last read; nil for one that cannot be read.
        var contents: [Data?]
    }

    private let certificateFile: String
    private let keyFile: String
    private let state: Mutex<State>

    /// - Throws: the fault of the files.
    init(certificateFile: String, keyFile: String) throws {
        self.certificateFile = certificateFile
        self.keyFile = keyFile
        // Read the contents before loading them, so that a change in between is noticed.
        let contents = [certificateFile, keyFile].map { FileManager.default.contents(atPath: $0) }
        let context = try Self.load(certificateFile, keyFile)
        self.state = Mutex(State(context: context, contents: contents))
    }

    /// The context of the next handshake.
    var context: NIOSSLContext { self.state.withLock { $0.context } }

    /// Loads the files if they have changed; keeps the previous certificate if they are faulty.
    func refresh(logger: Logger) {
        let contents = [self.certificateFile, self.keyFile].map { FileManager.default.contents(atPath: $0) }
        let haveChanged = self.state.withLock { state in
            defer { state.contents = contents }
            return state.contents != contents
        }
        guard haveChanged else { return }
        do {
            let context = try Self.load(self.certificateFile, self.keyFile)
            self.state.withLock { $0.context = context }
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
        // A client that does not answer TLS's closing alert stays connected for this long. The
        // hub's drain waits 6 s for it: 5 s for the close frame, and this second.
        configuration.shutdownTimeout = .seconds(1)
        // Making the context checks that the key fits the certificate.
        return try Self.read("GATEWAY_TLS_KEY") { try NIOSSLContext(configuration: configuration) }
    }

    private static func read<Value>(_ setting: String, _ work: () throws -> Value) throws -> Value {
        do {
            return try work()
        } catch {
            throw CertificateFault(description: "\(setting): \(NetworkFault.words(error))")
        }
    }
}

/// The reason why a certificate or its key cannot be used.
struct CertificateFault: Error, CustomStringConvertible {
    let description: String
}

/// A server channel behind TLS; each connection gets the current certificate.
struct CertificateChannel: HTTPChannelHandler {
    let connections: ConnectionChannel
    let certificate: ServerCertificate

    var responder: HTTPChannelHandler.Responder { self.connections.responder }

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<ConnectionChannel.Value> {
        do {
            let pipeline = channel.pipeline.syncOperations
            try pipeline.addHandler(NIOSSLServerHandler(context: self.certificate.context))
            try pipeline.addHandler(OutputSlices())
        } catch {
            return channel.eventLoop.makeFailedFuture(error)
        }
        return self.connections.setup(channel: channel, logger: logger)
    }

    func handle(value: ConnectionChannel.Value, logger: Logger) async {
        await self.connections.handle(value: value, logger: logger)
    }
}
