// Carillon · ListenFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import NIOCore
import Operations
import Testing

@Suite("Addresses that cannot be listened on", .timeLimit(.minutes(10)))
struct ListenFaultTests {
    private static func text(_ error: any Error, host: String = "::") -> String? {
        ListenFault(error, host: ("THE_HOST", host), port: ("THE_PORT", 80))?.description
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

    @Test(
        "writes an IPv6 address in brackets",
        arguments: [("::1", "cannot listen on [::1]:80: "), ("127.0.0.1", "cannot listen on 127.0.0.1:80: ")])
    func place(host: String, words: String) {
        let text = Self.text(IOError(errnoCode: EADDRINUSE, reason: "bind"), host: host)
        #expect(text?.contains(words) == true)
    }

    @Test("leaves other errors alone")
    func other() { #expect(Self.text(CancellationError()) == nil) }
}
