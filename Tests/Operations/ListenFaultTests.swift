// Carillon · ListenFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import NIOCore
import Operations
import Testing

@Suite("Addresses that cannot be listened on", .timeLimit(.minutes(10)))
struct ListenFaultTests {
    private static func text(_ error: any Error) -> String? {
        ListenFault(error, host: ("THE_HOST", "::"), port: ("THE_PORT", 80))?.description
    }

    @Test(
        "names the setting that is at fault; a machine without IPv6 cannot use ::",
        arguments: [
            (EADDRINUSE, "THE_PORT: "), (EACCES, "THE_PORT: "), (EADDRNOTAVAIL, "THE_HOST: "),
            (EAFNOSUPPORT, "THE_HOST: "),
        ])
    func setting(code: CInt, beginning: String) {
        #expect(Self.text(IOError(errnoCode: code, reason: "bind"))?.hasPrefix(beginning) == true)
    }

    @Test("leaves other errors alone")
    func other() { #expect(Self.text(CancellationError()) == nil) }
}
