// Carillon · WebPushKeyFile.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import ServiceLifecycle
import Synchronization

/// The public key that browsers subscribe with (RFC 8292 section 4.1), of a file that is looked at as often as dispatchers
/// look at theirs.
///
/// A faulty file never replaces a good key.
package final class WebPushKeyFile: Service {
    private static let interval: Duration = .seconds(10)

    private struct State {
        var publicKey: String
        /// What was told of the file, which is not told again while it stays as it is.
        var fault: VAPIDKey.Fault?
    }

    private let read: @Sendable () -> [UInt8]?
    private let logger: Logger
    private let state: Mutex<State>

    /// - Parameters:
    ///   - key: the key of the start.
    ///   - read: gives the file's contents; nil if they cannot be read.
    package init(_ key: VAPIDKey, logger: Logger, read: @escaping @Sendable () -> [UInt8]?) {
        self.read = read
        self.logger = logger
        self.state = Mutex(State(publicKey: key.publicKey))
    }

    /// The key in base64url.
    package var publicKey: String { self.state.withLock { $0.publicKey } }

    /// Looks at the file now and then.
    package func run() async throws {
        await cancelWhenGracefulShutdown {
            // A mounted secret changes through a link, which sends no signal, so poll the file.
            while (try? await Task.sleep(for: Self.interval)) != nil { self.look() }
        }
    }

    /// Takes the file's key, if it has a good one.
    package func look() {
        let metadata: Logger.Metadata = ["setting": "VAPID_KEY"]
        do throws(VAPIDKey.Fault) {
            guard let file = self.read() else { throw VAPIDKey.Fault("the file cannot be read") }
            let publicKey = try VAPIDKey(file: file).publicKey
            let isOther = self.state.withLock { state in
                defer { state = State(publicKey: publicKey) }
                return state.publicKey != publicKey
            }
            if isOther { self.logger.notice("web push key was read again", metadata: metadata) }
        } catch {
            let fault = error
            let isNew = self.state.withLock { state in
                defer { state.fault = fault }
                return state.fault != fault
            }
            guard isNew else { return }
            self.logger.error(
                "web push key cannot be used; the old one stays",
                metadata: metadata.merging(["error": "\(fault)"]) { $1 }
            )
        }
    }
}
