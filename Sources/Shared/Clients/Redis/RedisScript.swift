// Carillon · RedisScript.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// A Lua script that Redis keeps under the SHA-1 of its source.
package struct RedisScript: Sendable {
    package let name: String
    package let source: String
    /// The SHA-1 of the source in lower-case hexadecimal, the name that `EVALSHA` takes.
    package let digest: String

    /// - Parameters:
    ///   - name: for people and logs.
    ///   - source: Lua.
    ///   - digest: the source's SHA-1, computed by the caller's cryptography library.
    package init(name: String, source: String, digest: String) {
        self.name = name
        self.source = source
        self.digest = digest
    }
}
