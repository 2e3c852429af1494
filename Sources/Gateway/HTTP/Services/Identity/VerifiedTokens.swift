// Carillon · VerifiedTokens.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Synchronization

/// Tokens whose signature and claims were found good, so that a client's next request need not be checked so far again.
///
/// Holds digests, never tokens. What may change is left to be asked each time: whether it has expired is asked here,
/// whether it was revoked by whoever looks here; and a key set that was read again forgets what the one before allowed.
final class VerifiedTokens: Sendable {
    private struct Entry {
        let caller: Caller
        /// The reading of the key set that it was checked with; nil for one checked with a secret.
        let reading: UInt64?
    }

    private struct State {
        var recent: [SHA256.Digest: Entry] = [:]
        var older: [SHA256.Digest: Entry] = [:]
    }

    /// How many are held, at most twice: when so many are recent they become the older ones, and those are forgotten.
    private let bound: Int
    private let state = Mutex(State())

    init(bound: Int = 16_384) {
        self.bound = bound
    }

    static func digest(_ token: String) -> SHA256.Digest {
        var token = token
        return token.withUTF8 { SHA256.hash(data: UnsafeRawBufferPointer($0)) }
    }

    /// Whom a token speaks for, if it is known to be good now.
    ///
    /// - Parameter reading: which reading of the key set is in use.
    func caller(_ digest: SHA256.Digest, reading: UInt64?, now: Timestamp) -> Caller? {
        self.state.withLock { state in
            guard let entry = state.recent[digest] ?? state.older[digest] else { return nil }
            let hasExpired = entry.caller.expiresAt.map { $0 <= now } ?? false
            guard !hasExpired, entry.reading == nil || entry.reading == reading else {
                state.recent[digest] = nil
                state.older[digest] = nil
                return nil
            }
            if state.older.removeValue(forKey: digest) != nil { self.put(entry, digest, &state) }
            return entry.caller
        }
    }

    /// Keeps whom a token speaks for.
    ///
    /// - Parameter reading: of the key set that it was checked with, as it was before; nil if that was a secret.
    func keep(_ caller: Caller, _ digest: SHA256.Digest, reading: UInt64?) {
        self.state.withLock { self.put(Entry(caller: caller, reading: reading), digest, &$0) }
    }

    private func put(_ entry: Entry, _ digest: SHA256.Digest, _ state: inout State) {
        if state.recent.count >= self.bound {
            state.older = state.recent
            state.recent = [:]
        }
        state.recent[digest] = entry
    }
}
