// Carillon · Producer.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Synchronization
import Testing

/// Sends numbered jobs from several tasks, each with the same id until it is accepted.
final class Producer: Sendable {
    private let state = Mutex((next: 0, refusals: 0, isOver: false))
    private let gateway: Gateway
    private let token: String

    init(_ gateway: Gateway, token: String) {
        self.gateway = gateway
        self.token = token
    }

    /// The number of jobs so far.
    var count: Int { self.state.withLock { $0.next } }

    /// How often a job was refused.
    var refusals: Int { self.state.withLock { $0.refusals } }

    func stop() { self.state.withLock { $0.isOver = true } }

    /// Sends until ``stop()``.
    func run(width: Int) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<width {
                group.addTask { while let number = self.take() { try await self.submit(number) } }
            }
            try await group.waitForAll()
        }
    }

    private func take() -> Int? {
        self.state.withLock { state in
            guard !state.isOver else { return nil }
            defer { state.next += 1 }
            return state.next
        }
    }

    private func submit(_ number: Int) async throws {
        let user = number % 2 == 0 ? "online" : "offline"
        let json = #"{"id":"job-\#(number)","user":"\#(user)","type":"payment_received","title":"job \#(number)"}"#
        try await eventually("job \(number) is accepted") {
            let answer = try await self.gateway.call(
                .post, "/v1/jobs", token: self.token, json: json, retriesOutages: false)
            guard answer.status != 202 else { return true }
            #expect(answer.status == 503 && answer.header("retry-after") != nil)
            self.state.withLock { $0.refusals += 1 }
            return false
        }
    }

    // MARK: What users got

    /// Returns the titles of a user's inbox, and its version.
    static func inbox(of user: String, _ gateway: Gateway) async throws -> (titles: [String], version: Int64) {
        let token = Stack.token(user: user)
        var titles: [String] = []
        var cursor = ""
        while true {
            let page = try await gateway.call(.get, "/v1/notifications?limit=100\(cursor)", token: token).body
            titles += (page["notifications"]?.array ?? []).compactMap { $0["title"]?.string }
            guard let next = page["next_cursor"]?.string else { return (titles, page["version"]?.integer ?? 0) }
            cursor = "&cursor=\(next)"
        }
    }

    /// Waits until every job is in the inbox once or on the phone.
    ///
    /// The socket must have the inbox's version, and no frame twice.
    func check(_ socket: TestSocket, _ gateway: Gateway, _ stack: Stack) async throws {
        let count = self.count
        let online = stride(from: 0, to: count, by: 2).map { "job \($0)" }
        let offline = Set(stride(from: 1, to: count, by: 2).map { "job \($0)" })
        try await eventually("the inbox has every job once, and the socket its version") {
            let inbox = try await Self.inbox(of: "online", gateway)
            let versions = (socket.all("notification") + socket.all("sync")).compactMap { $0["version"]?.integer }
            return inbox.titles.sorted() == online.sorted() && versions.max() == inbox.version
        }
        #expect(socket.frames.count == Set(socket.frames).count, "twice on the socket")
        try await eventually("the phone got every job") { Set(stack.pushed()["phone"] ?? []) == offline }
    }
}
