// Carillon · Fakes.swift
// SPDX-License-Identifier: Apache-2.0

import CarillonClient
import Foundation
import Synchronization

/// Serves each socket with the next script, and records what the client sends.
final class FakeGateway: SocketTransport, HTTPTransport {
    enum Script: Sendable {
        /// Refuses the handshake with a status.
        case refuse(Int)
        /// Opens the socket and sends these frames.
        case open([String])
        /// Opens the socket, sends these frames, then closes with a code.
        case close(Int, [String])
    }

    struct State {
        var scripts: [Script]
        var paths: [String] = []
        var tokens: [String] = []
        var sockets: [FakeSocket] = []
        var requests: [GatewayRequest] = []
        var answers: [GatewayAnswer] = []
        var held: [CheckedContinuation<Void, Never>] = []
        var holds = false
    }

    private let state: Mutex<State>

    init(_ scripts: Script..., answers: [GatewayAnswer] = []) {
        self.state = Mutex(State(scripts: scripts, answers: answers))
    }

    var paths: [String] { self.state.withLock { $0.paths } }
    var tokens: [String] { self.state.withLock { $0.tokens } }
    var sockets: [FakeSocket] { self.state.withLock { $0.sockets } }
    var requests: [GatewayRequest] { self.state.withLock { $0.requests } }

    func open(_ url: URL, headers: [String: String]) async throws(SocketEnd) -> any Socket {
        let script = self.state.withLock { state in
            state.paths.append(url.path + (url.query.map { "?\($0)" } ?? ""))
            state.tokens.append(headers["Authorization"]?.replacingOccurrences(of: "Bearer ", with: "") ?? "")
            return state.scripts.isEmpty ? .refuse(503) : state.scripts.removeFirst()
        }
        let socket = FakeSocket()
        switch script {
        case .refuse(let status): throw .refused(status: status, body: Data())
        case .open(let frames): frames.forEach { socket.push($0) }
        case .close(let code, let frames):
            frames.forEach { socket.push($0) }
            socket.end(.closed(code: code, reason: "a reason"))
        }
        self.state.withLock { $0.sockets.append(socket) }
        return socket
    }

    func send(_ request: GatewayRequest) async throws -> GatewayAnswer {
        let holds = self.state.withLock { state in
            state.requests.append(request)
            return state.holds
        }
        if holds { await withCheckedContinuation { held in self.state.withLock { $0.held.append(held) } } }
        return try self.state.withLock { state in
            guard !state.answers.isEmpty else { throw URLError(.cannotConnectToHost) }
            return state.answers.removeFirst()
        }
    }

    /// Makes requests wait until `release`.
    func hold() { self.state.withLock { $0.holds = true } }

    func release() {
        let held = self.state.withLock { state in
            state.holds = false
            defer { state.held = [] }
            return state.held
        }
        for request in held { request.resume() }
    }
}

/// A socket whose frames come from a test.
final class FakeSocket: Socket {
    private struct State {
        var frames: [String] = []
        var end: SocketEnd?
        var reader: CheckedContinuation<Result<String, SocketEnd>, Never>?
        var waitingPings: [CheckedContinuation<Bool, Never>] = []
        var pings = 0
        var sent: [String] = []
        var answersPings = true
    }

    private let state = Mutex(State())

    /// The messages of the client.
    var sent: [String] { self.state.withLock { $0.sent } }
    var pings: Int { self.state.withLock { $0.pings } }
    var isClosed: Bool { self.state.withLock { $0.end != nil } }

    func push(_ frame: String) {
        self.state.withLock { state in
            if let reader = state.reader {
                state.reader = nil
                reader.resume(returning: .success(frame))
            } else {
                state.frames.append(frame)
            }
        }
    }

    func end(_ end: SocketEnd) {
        self.state.withLock { state in
            state.end = state.end ?? end
            state.reader?.resume(returning: .failure(end))
            state.reader = nil
            for ping in state.waitingPings { ping.resume(returning: false) }
            state.waitingPings = []
        }
    }

    func stopAnsweringPings() { self.state.withLock { $0.answersPings = false } }

    func receive() async throws(SocketEnd) -> String {
        let result = await withCheckedContinuation { (reader: CheckedContinuation<Result<String, SocketEnd>, Never>) in
            self.state.withLock { state in
                if !state.frames.isEmpty {
                    reader.resume(returning: .success(state.frames.removeFirst()))
                } else if let end = state.end {
                    reader.resume(returning: .failure(end))
                } else {
                    state.reader = reader
                }
            }
        }
        return try result.get()
    }

    func send(_ text: String) async throws(SocketEnd) {
        self.state.withLock { $0.sent.append(text) }
    }

    func ping() async throws(SocketEnd) {
        let isAnswered = await withCheckedContinuation { ping in
            self.state.withLock { state in
                state.pings += 1
                if state.answersPings || state.end != nil {
                    ping.resume(returning: state.end == nil)
                } else {
                    state.waitingPings.append(ping)
                }
            }
        }
        if !isAnswered { throw .closed(code: 1006, reason: "") }
    }

    func close() { self.end(.closed(code: 1006, reason: "closed here")) }
}

/// A clock that a test controls: waits under a second end at once, longer ones by `pass`.
final class FakeTime: Sendable {
    private struct Sleeper {
        let number: Int
        let duration: Duration
        let wake: CheckedContinuation<Bool, Never>
    }

    private struct State {
        var lastNumber = 0
        var waits: [Duration] = []
        var sleepers: [Sleeper] = []
    }

    private let state = Mutex(State())

    /// All waits under 20 s: the backoffs of connections and of pages.
    var waits: [Duration] { self.state.withLock { $0.waits } }

    var timing: Timing {
        var timing = Timing()
        timing.jitter = { 0.01 }
        timing.sleep = { try await self.sleep($0) }
        return timing
    }

    private func sleep(_ duration: Duration) async throws {
        let number = self.state.withLock { state in
            state.lastNumber += 1
            if duration < .seconds(20) { state.waits.append(duration) }
            return state.lastNumber
        }
        guard duration >= .seconds(1) else { return await Task.yield() }
        let isDone = await withTaskCancellationHandler {
            await withCheckedContinuation { wake in
                self.state.withLock { state in
                    guard !Task.isCancelled else { return wake.resume(returning: false) }
                    state.sleepers.append(Sleeper(number: number, duration: duration, wake: wake))
                }
            }
        } onCancel: {
            self.wake(false) { $0.number == number }
        }
        if !isDone { throw CancellationError() }
    }

    /// Waits until a task sleeps for this time, and wakes it.
    func pass(_ duration: Duration) async throws {
        try await eventually { self.wake(true) { $0.duration == duration } }
    }

    @discardableResult
    private func wake(_ isDone: Bool, where condition: (Sleeper) -> Bool) -> Bool {
        self.state.withLock { state in
            guard let index = state.sleepers.firstIndex(where: condition) else { return false }
            state.sleepers.remove(at: index).wake.resume(returning: isDone)
            return true
        }
    }
}

struct NeverHappened: Error {}

/// Waits up to a minute until a condition holds; only a failure takes that long.
func eventually(_ condition: () async throws -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(60)
    while try await !condition() {
        guard ContinuousClock.now < deadline else { throw NeverHappened() }
        // Poll, because the fakes do not signal every condition.
        try await Task.sleep(for: .milliseconds(1))
    }
}

// MARK: Frames

func notification(_ number: Int, version: Int? = nil, isRead: Bool = false, _ more: String = "") -> String {
    let id = String(repeating: "0", count: 3 - "\(number)".count) + "\(number)"
    let readAt = isRead ? "\"2026-11-26T11:00:00.000Z\"" : "null"
    return """
        {"id":"\(id)","type":"t","severity":"info","delivery":"in_app","title":"\(number)","body":"","data":{},\
        "version":\(version ?? number),"created_at":"2026-11-26T10:52:49.899Z","read_at":\(readAt),\
        "colour":"unknown to this version"\(more)}
        """
}

func sync(
    _ version: Int, _ notifications: String..., unread: Int = 0, deleted: [String] = [], isReset: Bool = false
) -> String {
    let ids = deleted.map { "\"\($0)\"" }.joined(separator: ",")
    return """
        {"type":"sync","version":\(version),"unread":\(unread),"total":9,"has_more":false,"cursor":null,\
        "reset":\(isReset),"deleted":[\(ids)],"notifications":[\(notifications.joined(separator: ","))]}
        """
}

func arrival(_ number: Int, unread: Int = 1, _ more: String = "") -> String {
    """
    {"type":"notification","version":\(number),"unread":\(unread),"notification":\(notification(number, more))}
    """
}

func change(_ kind: String, _ version: Int, unread: Int, _ change: String) -> String {
    """
    {"type":"\(kind)","version":\(version),"unread":\(unread),"change":{\(change),"at":"2026-11-26T12:00:00.000Z"}}
    """
}

func answer(_ json: String, status: Int = 200) -> GatewayAnswer {
    GatewayAnswer(status: status, headers: ["X-Request-ID": "r1", "Retry-After": "5"], body: Data(json.utf8))
}
