// Carillon · WebPushKeyFileTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Support
import Synchronization
import Testing

@testable import HTTP

struct WebPushKeyFileTests {
    /// The contents of a file that changes.
    private final class Contents: Sendable {
        private let bytes: Mutex<[UInt8]?>

        init(_ text: String) {
            self.bytes = Mutex(Array(text.utf8))
        }

        var value: [UInt8]? { self.bytes.withLock { $0 } }

        func put(_ text: String?) {
            self.bytes.withLock { $0 = text.map { Array($0.utf8) } }
        }
    }

    /// A private key: any number of 32 bytes that is below the curve's order.
    private static func key(_ byte: UInt8) -> String { Base64.url.encode([UInt8](repeating: byte, count: 32)) }

    private static func publicKey(_ byte: UInt8) throws -> String {
        try VAPIDKey(file: Array(Self.key(byte).utf8)).publicKey
    }

    @Test("takes a new key, keeps the old one if the file is faulty, and logs each fault once")
    func refresh() throws {
        let (first, second) = (try Self.publicKey(1), try Self.publicKey(2))
        #expect(first != second)
        let lines = LogRecorder { "\($0.level.rawValue) \($0.metadata?["error"]?.description ?? "")" }
        let contents = Contents(Self.key(1))
        let file = WebPushKeyFile(
            try VAPIDKey(file: Array(Self.key(1).utf8)),
            logger: lines.logger,
            read: { contents.value }
        )
        file.refresh()
        #expect(file.publicKey == first)
        #expect(lines.all.isEmpty)

        contents.put(Self.key(2) + "\n")
        file.refresh()
        #expect(file.publicKey == second)
        #expect(lines.all == ["notice "])

        for text in ["hunter2", nil] {
            contents.put(text)
            for _ in 0..<2 { file.refresh() }
            #expect(file.publicKey == second)
        }
        #expect(lines.all.count == 3)
        #expect(lines.all.dropFirst().allSatisfy { $0.hasPrefix("error the ") && !$0.contains("hunter2") })

        // A fault that was fixed and returns is logged again.
        contents.put(Self.key(2))
        file.refresh()
        contents.put(nil)
        file.refresh()
        #expect(lines.all.count == 4)
    }
}
