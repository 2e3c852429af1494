// Carillon · LogOutputTests.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Synchronization
import Testing

@testable import Operations

struct LogOutputTests {
    @Test("a text line has spaces in place of control characters, so that a job cannot forge a line")
    func plainLines() {
        let lines = Mutex<[String]>([])
        var handler = TextLogHandler(
            label: "test", logLevel: .info, lines: PlainLines { line in lines.withLock { $0.append(line) } })
        handler[metadataKey: "node"] = "n\u{1B}[2J"
        handler.log(
            event: LogEvent(
                level: .info, message: "stored\r", metadata: ["job.id": "x\n2026 error: é\u{2028}\u{85}"],
                source: "Test", file: "", function: "", line: 1))
        let written = lines.withLock { $0 }
        let expected = " info test: job.id=x 2026 error: é   node=n [2J [Test] stored \n"
        #expect(written.count == 1 && written.first?.hasSuffix(expected) == true)
    }
}
