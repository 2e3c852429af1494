// Carillon · TestEngine.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support

/// An Engine.IO polling client that sends exactly the packets a test gives it.
struct TestEngine: Sendable {
    let port: Int
    let http: TransferClient
    let sid: String

    static let separator: Character = "\u{1E}"

    struct Answer: Sendable {
        let status: Int
        let body: String
        let response: TransferResponse

        /// The packets of the answer.
        var packets: [String] { self.body.split(separator: TestEngine.separator).map { String($0) } }
    }

    /// Opens a session.
    static func open(port: Int, http: TransferClient) async throws -> TestEngine {
        let answer = try await Self.send(.get, "?EIO=4&transport=polling", port: port, http: http)
        let handshake = try JSONParser.parse(Array(answer.body.utf8.dropFirst()))
        guard answer.status == 200, let sid = handshake["sid"]?.string else {
            throw FixtureError("no session: \(answer.status) \(answer.body)")
        }
        return TestEngine(port: port, http: http, sid: sid)
    }

    static func send(
        _ method: TransferRequest.Method,
        _ query: String,
        body: String = "",
        headers: [(name: String, value: String)] = [],
        port: Int,
        http: TransferClient
    ) async throws -> Answer {
        let request = TransferRequest(
            method,
            url: "http://127.0.0.1:\(port)/socket.io/\(query)",
            headers: [(name: "content-type", value: "text/plain;charset=UTF-8")] + headers,
            body: Array(body.utf8),
            timeout: .seconds(240),
            maximumResponseBytes: 16 * 1024 * 1024
        )
        switch await http.perform(request) {
        case .answered(let response):
            let body = String(decoding: response.body, as: UTF8.self)
            return Answer(status: response.status, body: body, response: response)
        case .unanswered(let failure): throw FixtureError("\(method.rawValue) \(query): \(failure)")
        }
    }

    var query: String { "?EIO=4&transport=polling&sid=\(self.sid)" }

    func poll() async throws -> Answer {
        try await Self.send(.get, self.query, port: self.port, http: self.http)
    }

    @discardableResult
    func post(_ packets: String...) async throws -> Answer {
        let body = packets.joined(separator: String(Self.separator))
        return try await Self.send(.post, self.query, body: body, port: self.port, http: self.http)
    }

    /// Polls until a packet with this prefix comes and returns all packets received.
    func poll(until prefix: String) async throws -> [String] {
        var packets: [String] = []
        while !packets.contains(where: { $0.hasPrefix(prefix) }) {
            let answer = try await self.poll()
            guard answer.status == 200 else { throw FixtureError("poll: \(answer.status) \(answer.body)") }
            packets += answer.packets
            if answer.packets.contains("2") { try await self.post("3") }
        }
        return packets
    }
}
