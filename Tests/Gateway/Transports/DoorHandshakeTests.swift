// Carillon · DoorHandshakeTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOEmbedded
import Testing

/// Handshakes of WebSockets that are not in order (RFC 6455 section 4.2.1), at the door.
@Suite("Faulty handshakes", .timeLimit(.minutes(10)))
struct DoorHandshakeTests {
    private static let key = "dGhlIHNhbXBsZSBub25jZQ=="

    /// A handshake that is in order but for what a test changes; an empty value takes its field away.
    private static func handshake(
        _ path: String, _ changes: [String: String], method: String = "GET", version: String = "HTTP/1.1"
    ) -> String {
        let fields = [
            "Host": "x", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": Self.key,
        ].merging(changes) { $1 }
        let lines = fields.filter { !$0.value.isEmpty }.map { "\($0.key): \($0.value)" }
        return (["\(method) \(path) \(version)"] + lines).joined(separator: "\r\n") + "\r\n\r\n"
    }

    /// The status of an answer, its body, and the versions that it names.
    private static func answer(to request: String) throws -> (status: String, body: String, versions: [String]) {
        let door = try Door()
        try door.send(request)
        let answer = try door.answers()
        #expect(!door.channel.isActive)
        let lines = answer.split(separator: "\r\n", omittingEmptySubsequences: false).map { String($0) }
        let name = "sec-websocket-version: "
        return (
            lines.first?.split(separator: " ").dropFirst().first.map { String($0) } ?? "",
            lines.last ?? "",
            lines.filter { $0.lowercased().hasPrefix(name) }.map { String($0.dropFirst(name.count)) }
        )
    }

    @Test("Each fault is refused in the endpoint's own words", arguments: ["/length", "/plain"])
    func faults(_ path: String) throws {
        let table: [(request: String, status: String, reason: String)] = [
            (Self.handshake(path, [:], method: "POST"), "400", "the handshake must be GET"),
            (Self.handshake(path, [:], version: "HTTP/1.0"), "400", "the handshake must be GET"),
            (Self.handshake(path, ["Host": ""]), "400", "the Host header"),
            (Self.handshake(path, ["host": "y"]), "400", "the Host header"),
            (Self.handshake(path, ["Connection": ""]), "400", "the Connection header"),
            (Self.handshake(path, ["Connection": "keep-alive"]), "400", "the Connection header"),
            (Self.handshake(path, ["Sec-WebSocket-Version": ""]), "426", "must be 13"),
            (Self.handshake(path, ["Sec-WebSocket-Version": "8"]), "426", "must be 13"),
            (Self.handshake(path, ["Sec-WebSocket-Version": "14"]), "426", "must be 13"),
            (Self.handshake(path, ["Sec-WebSocket-Key": ""]), "400", "16 bytes in base64"),
            (Self.handshake(path, ["Sec-WebSocket-Key": "c2hvcnQ="]), "400", "16 bytes in base64"),
            (Self.handshake(path, ["Sec-WebSocket-Key": "no base64 of 16 bytes!!!"]), "400", "16 bytes in base64"),
            (Self.handshake(path, ["sec-websocket-key": Self.key]), "400", "16 bytes in base64"),
        ]
        for (request, status, reason) in table {
            let answer = try Self.answer(to: request)
            #expect(answer.status == status, "\(request)")
            #expect(answer.body.contains(reason), "\(request)")
            #expect(answer.body.hasPrefix("{") == (path == "/length"))
            #expect(answer.versions == (status == "426" ? ["13"] : []), "\(request)")
        }
    }
}
