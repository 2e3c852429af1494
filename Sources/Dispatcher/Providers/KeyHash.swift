// Carillon · KeyHash.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto

/// A short name for a collapse key that says nothing about it and is the same each time.
enum KeyHash {
    /// How much of a hash fills the 32 characters of a Web Push topic (RFC 8030 section 5.4).
    private static let bytes = 24

    /// 32 characters of base64url.
    static func text(_ key: String) -> String {
        Base64URL.encode(SHA256.hash(data: Array(key.utf8)).prefix(Self.bytes))
    }
}
