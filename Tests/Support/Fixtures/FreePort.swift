// Carillon · FreePort.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Synchronization

/// Finds TCP ports on the loopback address that nobody listens on.
package enum FreePort {
    // Below Linux' ephemeral range, so that no outgoing connection takes the port between the look and its use.
    private static let range = 20_000...32_000
    private static let given = Mutex(Set<Int>())

    /// A free port that this process has not given out before.
    ///
    /// - Throws: ``FixtureError`` if a hundred draws found none.
    package static func next() throws -> Int {
        for _ in 0..<100 {
            let port = Int.random(in: Self.range)
            guard Self.given.withLock({ $0.insert(port).inserted }), Self.isFree(port) else { continue }
            return port
        }
        throw FixtureError("no free port")
    }

    private static func isFree(_ port: Int) -> Bool {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = in_addr_t(INADDR_LOOPBACK).bigEndian
        // `bind` reads the address as the general form during the call only.
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { general in
                bind(descriptor, general, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
    }
}
