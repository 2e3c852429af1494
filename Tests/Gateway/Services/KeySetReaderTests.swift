// Carillon · KeySetReaderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import HTTP
import Support
import Testing

@Suite("Where key sets lie", .timeLimit(.minutes(10)))
struct KeySetReaderTests {
    @Test("a URL's whole answer of 200 is taken, nothing else")
    func url() async throws {
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        let client = try TransferClient(configuration: configuration, logger: TestLog.logger)
        try await HTTPStub.with(.init(body: "a document")) { server in
            let url = server.url + "/keys"
            let document = try await KeySetReader.url(url, client: client)
            #expect(document == Array("a document".utf8))
            for answer in [
                HTTPStub.Answer(status: 302, body: ""), HTTPStub.Answer(status: 404, body: "{}"),
                HTTPStub.Answer(status: 500, body: "{}"),
                HTTPStub.Answer(body: String(repeating: "x", count: 256 * 1024 + 1)),
            ] {
                server.answer(answer)
                await #expect(throws: KeySetFault.self) { try await KeySetReader.url(url, client: client) }
            }
        }
        let port = try FreePort.next()
        await #expect(throws: KeySetFault.self) {
            try await KeySetReader.url("http://127.0.0.1:\(port)/keys", client: client)
        }
        await client.shutdown()
    }

    @Test("a file that is not there, or far too long, is a fault")
    func file() throws {
        let directory = try TemporaryDirectory("keys")
        #expect(throws: KeySetFault.self) { try KeySetReader.file(directory.file("none.json")) }
        try String(repeating: "x", count: 300_000).write(
            toFile: directory.file("long.json"), atomically: false, encoding: .utf8)
        #expect(throws: KeySetFault.self) { try KeySetReader.file(directory.file("long.json")) }
    }
}
