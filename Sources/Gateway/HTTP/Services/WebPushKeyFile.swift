// Carillon · WebPushKeyFile.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Synchronization

/// The public key for subscriptions of browsers (RFC 8292 section 4.1), read from a file.
///
/// An invalid file never replaces a valid key.
package final class WebPushKeyFile: Sendable {
    private struct State {
        var publicKey: String
        /// The last reported fault; an unchanged fault is not logged again.
        var fault: FieldFault?
    }

    private let read: @Sendable () -> [UInt8]?
    private let logger: Logger
    private let state: Mutex<State>

    /// - Parameters:
    ///   - key: the key at the start.
    ///   - read: returns the file's contents; nil if it cannot be read.
    package init(_ key: VAPIDKey, logger: Logger, read: @escaping @Sendable () -> [UInt8]?) {
        self.read = read
        self.logger = logger
        self.state = Mutex(State(publicKey: key.publicKey))
    }

    /// The public key in base64url.
    var publicKey: String { self.state.withLock { $0.publicKey } }

    /// Reloads the key if the file is valid.
    package func refresh() {
        let metadata: Logger.Metadata = ["setting": "VAPID_KEY"]
        do throws(FieldFault) {
            guard let file = self.read() else { throw FieldFault("the file cannot be read") }
            let publicKey = try VAPIDKey(file: file).publicKey
            let isOther = self.state.withLock { state in
                defer { state = State(publicKey: publicKey) }
                return state.publicKey != publicKey
            }
            if isOther { self.logger.notice("web push key reloaded", metadata: metadata) }
        } catch {
            let fault = error
            let isNew = self.state.withLock { state in
                defer { state.fault = fault }
                return state.fault != fault
            }
            guard isNew else { return }
            self.logger.error(
                "cannot use new web push key; keeping the old one",
                metadata: metadata.merging(["error": "\(fault)"]) { $1 }
            )
        }
    }
}
