// Carillon · SocketIOConformanceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

/// The cases of the protocols' own test suites, run against the conformance program.
@Suite(
    .serialized, .timeLimit(.minutes(10)),
    .enabled(if: PythonClient.has("requests") && PythonClient.has("websocket"))
)
struct SocketIOConformanceTests {
    @Test(
        "the conformance program passes every case of Engine.IO 4 and Socket.IO 5, with recovery if it is on",
        arguments: [false, true])
    func cases(_ recovery: Bool) async throws {
        let directory = try TemporaryDirectory("conformance")
        let program = try await ChildProcess.spawn(
            TestProducts.path("conformance"),
            ["--ping-interval", "300", "--ping-timeout", "200", "--max-payload", "1000000"]
                + (recovery ? ["--recovery"] : []),
            name: "conformance",
            directory: directory.path
        )
        let port = try #require(try await program.waitForLine("ready ").split(separator: ":").last)
        let client = try await PythonClient.start(
            "socketio_conformance.py", [String(port)] + (recovery ? ["recovery"] : []), in: directory.path)
        let exit = try await client.process.waitForExit(within: .seconds(90))
        let failures = client.lines.filter { $0.hasPrefix("FAIL") }
        #expect(failures == [])
        #expect(exit == .code(0))
        #expect(client.lines.count { $0.hasPrefix("ok ") } == (recovery ? 1 : 47))
        try await program.stop()
    }
}
