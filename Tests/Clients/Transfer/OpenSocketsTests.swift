// Carillon · OpenSocketsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Testing

@testable import Clients

@Suite("Open sockets")
struct OpenSocketsTests {
    @Test("corks open sockets for a turn, but none that got the descriptor of a closed one")
    func closed() {
        let sockets = OpenSockets()
        let (kept, reused, other) = (Self.open(), Self.open(), Self.open())
        defer { for descriptor in [kept, reused, other] { close(descriptor) } }
        sockets.insert(kept)
        sockets.insert(reused)
        #expect(sockets.corked { Self.isCorked(kept) && Self.isCorked(reused) })
        #expect(!Self.isCorked(kept) && !Self.isCorked(reused))
        // Closes the socket and reuses its descriptor at once, as other tests open files.
        #expect(dup2(other, reused) == reused)
        #expect(sockets.corked { Self.isCorked(kept) && !Self.isCorked(reused) })
    }

    private static func open() -> CInt { socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0) }

    private static func isCorked(_ descriptor: CInt) -> Bool {
        var value: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        return getsockopt(descriptor, CInt(IPPROTO_TCP), TCP_CORK, &value, &length) == 0 && value == 1
    }
}
