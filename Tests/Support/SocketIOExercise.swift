// Carillon · SocketIOExercise.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols

/// Runs a session and its connection from a script of arbitrary bytes and checks their guarantees.
///
/// Deterministic, for fuzzing. Plays the owner, which decides requests and echoes events, and a
/// client that uses requests and WebSockets in any order.
package struct SocketIOExercise {
    private var script: ArraySlice<UInt8>
    private var now: Milliseconds = 0
    private var lastNumber: UInt64 = 0
    private var session: EngineIOStateMachine
    private var connection: SocketIOStateMachine
    private var guarantees: SocketIOGuarantees
    private var posts: [EngineIOCarrier] = []
    private var polls: [EngineIOCarrier] = []
    private var webSockets: [EngineIOCarrier] = []

    private init(_ script: [UInt8]) {
        self.script = script[...]
        let configuration = EngineIOConfiguration(
            maximumPayload: 400, maximumPacketsReceived: 8, maximumBytesSent: 100, maximumWaiting: 4_000)
        let recovering = SocketIOConfiguration(offersRecovery: true)
        let carrier = EngineIOCarrier(0)
        var actions: [EngineIOAction] = []
        self.connection = SocketIOStateMachine(configuration: recovering, now: 0)
        if self.script.popFirst().map({ $0 % 2 == 0 }) ?? true {
            self.guarantees = SocketIOGuarantees(request: carrier)
            self.session = EngineIOStateMachine(
                sid: "S", polling: carrier, configuration: configuration, now: 0, into: &actions)
        } else {
            self.guarantees = SocketIOGuarantees(webSocket: carrier)
            self.webSockets = [carrier]
            self.session = EngineIOStateMachine(
                sid: "S", webSocket: carrier, configuration: configuration, now: 0, into: &actions)
        }
        self.perform(actions)
    }

    /// Runs a script to its end.
    ///
    /// - Returns: the first broken guarantee, or nil.
    package static func run(_ script: [UInt8]) -> String? {
        if let broken = SocketIOGuarantees.codecs(script) { return broken }
        var exercise = SocketIOExercise(script)
        while exercise.guarantees.broken == nil, let command = exercise.script.popFirst() { exercise.step(command) }
        exercise.end()
        return exercise.guarantees.broken
    }

    private mutating func step(_ command: UInt8) {
        self.now += Milliseconds(command >> 4) * 40
        var actions: [EngineIOAction] = []
        let now = self.now
        switch command % 16 {
        case 0, 1:
            let request = self.carrier()
            self.guarantees.asked(request)
            self.polls.append(request)
            self.session.pollRequested(request, now: now, into: &actions)
        case 2, 3:
            let request = self.carrier()
            self.guarantees.asked(request)
            let type = command == 2 ? "application/octet-stream" : nil
            let isWanted = self.session.postStarted(
                request, contentType: type, contentLength: nil, now: now, into: &actions)
            if isWanted { self.posts.append(request) }
        case 4, 5:
            guard let request = self.posts.popLast() else { return }
            self.session.postCompleted(request, body: self.phrase(), now: now, into: &actions)
        case 6:
            let webSocket = self.carrier()
            self.webSockets.append(webSocket)
            self.guarantees.opened(webSocket)
            self.session.webSocketOpened(webSocket, now: now, into: &actions)
        case 7:
            guard let webSocket = self.pick(self.webSockets) else { return }
            self.session.webSocketText(webSocket, self.phrase(), now: now, into: &actions)
        case 8: self.upgrade(fully: command > 60, into: &actions)
        case 9: self.answer(into: &actions)
        case 10:
            guard let webSocket = self.pick(self.webSockets) else { return }
            self.session.webSocketBinary(webSocket, now: now, into: &actions)
        case 11: self.session.send([self.phrase(), Array("m".utf8)], into: &actions)
        case 12:
            var wanted: [SocketIOAction] = []
            self.connection.disconnect(now: now, into: &wanted)
            self.perform(wanted, into: &actions)
        case 13: self.leave(command, into: &actions)
        case 14:
            self.now += command > 220 ? 9_000 : 100
            self.session.tick(now: self.now, into: &actions)
            var wanted: [SocketIOAction] = []
            self.connection.tick(now: self.now, into: &wanted)
            self.perform(wanted, into: &actions)
        default: if command > 200 { self.session.close(.forcedClose, now: now, into: &actions) }
        }
        self.perform(actions)
    }

    /// Probes a WebSocket and, if `fully`, takes over with it, as a correct client does.
    private mutating func upgrade(fully: Bool, into actions: inout [EngineIOAction]) {
        let webSocket = self.carrier()
        self.webSockets.append(webSocket)
        self.guarantees.opened(webSocket)
        self.session.webSocketOpened(webSocket, now: self.now, into: &actions)
        self.session.webSocketText(webSocket, Array("2probe".utf8), now: self.now, into: &actions)
        if fully { self.session.webSocketText(webSocket, Array("5".utf8), now: self.now, into: &actions) }
    }

    /// Answers a ping and sends a valid message over the current transport.
    private mutating func answer(into actions: inout [EngineIOAction]) {
        let choice = Int(self.script.popFirst() ?? 0)
        let choices = SocketIOPhrases.proper(isJoined: self.connection.hasJoined)
        let packets = [EngineIOPacket.pong([]), .message(Array(choices[choice % choices.count].utf8))]
        if let webSocket = self.guarantees.current {
            for packet in packets {
                let text = EngineIOPayload.encode([packet])
                self.session.webSocketText(webSocket, text, now: self.now, into: &actions)
            }
        } else if self.posts.isEmpty {
            let request = self.carrier()
            self.guarantees.asked(request)
            let body = EngineIOPayload.encode(packets)
            let isWanted = self.session.postStarted(
                request, contentType: nil, contentLength: body.count, now: self.now, into: &actions)
            guard isWanted else { return }
            self.session.postCompleted(request, body: body, now: self.now, into: &actions)
        }
    }

    /// Drops an open request or WebSocket of the client.
    private mutating func leave(_ command: UInt8, into actions: inout [EngineIOAction]) {
        if command < 100, let webSocket = self.pick(self.webSockets) {
            self.webSockets.removeAll { $0 == webSocket }
            self.guarantees.lost(webSocket)
            self.session.webSocketClosed(webSocket, into: &actions)
        } else if command < 200, let poll = self.pick(self.polls) {
            self.guarantees.aborted(poll)
            self.session.pollAborted(poll, into: &actions)
        } else if let post = self.posts.popLast() {
            self.guarantees.aborted(post)
            self.session.postAborted(post, into: &actions)
        }
    }

    /// Advances time far enough that everything must be closed and answered.
    private mutating func end() {
        var actions: [EngineIOAction] = []
        for _ in 0..<4 {
            self.now += 60_000
            self.session.tick(now: self.now, into: &actions)
        }
        self.perform(actions)
        self.guarantees.finished(self.session)
    }

    private mutating func perform(_ actions: [EngineIOAction]) {
        var pending = actions[...]
        while let action = pending.popFirst() {
            self.guarantees.check(action)
            var wanted: [SocketIOAction] = []
            switch action {
            case .deliver(let message): self.connection.receive(message, now: self.now, into: &wanted)
            case .closed: self.connection.sessionClosed(into: &wanted)
            default: break
            }
            var caused: [EngineIOAction] = []
            self.perform(wanted, into: &caused)
            pending += caused
        }
        self.guarantees.check(self.session)
    }

    private mutating func perform(_ wanted: [SocketIOAction], into actions: inout [EngineIOAction]) {
        for action in wanted {
            var answers: [SocketIOAction] = []
            switch action {
            case .send(let packets): self.session.send(packets, into: &actions)
            case .connectRequested(let request) where self.script.first.map { $0 % 4 == 0 } ?? false:
                self.connection.refuse(request.ticket, message: "no", into: &answers)
            case .connectRequested(let request):
                let grant = request.recovery.map {
                    SocketIORecoveryGrant(pid: $0.pid, missed: [Array(#"2["m","O"]"#.utf8)])
                }
                self.connection.accept(request.ticket, sid: "C", recovery: grant, into: &answers)
            case .event(let name, let arguments, let id):
                if let id { self.connection.acknowledge(id, with: arguments, into: &answers) }
                let echo = JSONWriter.bytes(of: .array([.string(name)] + arguments))
                self.session.send([Array("2".utf8) + echo], into: &actions)
            case .close(let reason): self.session.close(reason, now: self.now, into: &actions)
            case .connectWithdrawn, .left: break
            }
            self.perform(answers, into: &actions)
        }
    }

    private mutating func carrier() -> EngineIOCarrier {
        self.lastNumber += 1
        return EngineIOCarrier(self.lastNumber)
    }

    private mutating func pick(_ carriers: [EngineIOCarrier]) -> EngineIOCarrier? {
        guard !carriers.isEmpty else { return nil }
        return carriers[Int(self.script.popFirst() ?? 0) % carriers.count]
    }

    /// Returns a known phrase or a part of the script.
    private mutating func phrase() -> [UInt8] {
        let choice = Int(self.script.popFirst() ?? 0)
        guard choice >= 200 else { return Array(SocketIOPhrases.any[choice % SocketIOPhrases.any.count].utf8) }
        let piece = Array(self.script.prefix(choice - 199))
        self.script = self.script.dropFirst(piece.count)
        return piece
    }
}

/// The guarantees of a session to its owner, checked after each action.
struct SocketIOGuarantees {
    private var requests: Set<EngineIOCarrier> = []
    private var webSockets: Set<EngineIOCarrier> = []
    /// The session's current WebSocket.
    private(set) var current: EngineIOCarrier?
    private var isClosed = false
    /// The first broken guarantee.
    private(set) var broken: String?

    init(request: EngineIOCarrier) {
        self.requests = [request]
    }

    init(webSocket: EngineIOCarrier) {
        self.webSockets = [webSocket]
        self.current = webSocket
    }

    mutating func asked(_ request: EngineIOCarrier) { self.requests.insert(request) }
    mutating func aborted(_ request: EngineIOCarrier) { self.requests.remove(request) }
    mutating func opened(_ webSocket: EngineIOCarrier) { self.webSockets.insert(webSocket) }
    mutating func lost(_ webSocket: EngineIOCarrier) { self.webSockets.remove(webSocket) }

    private mutating func expect(_ isKept: Bool, _ guarantee: String) {
        if !isKept, self.broken == nil { self.broken = guarantee }
    }

    mutating func check(_ action: EngineIOAction) {
        switch action {
        case .respond(let request, let response):
            self.expect(self.requests.remove(request) != nil, "a request is answered once")
            guard response.contentType == .text else { return }
            let packets = response.body.split(separator: EngineIOPayload.separator, omittingEmptySubsequences: false)
            self.expect(packets.count <= 16 && packets.allSatisfy { !$0.isEmpty }, "an answer has 1 to 16 packets")
        case .sendText(let webSocket, let text):
            self.expect(self.webSockets.contains(webSocket), "nothing is sent on a closed WebSocket")
            let isProbe = text == Array("3probe".utf8)
            self.expect(isProbe || webSocket == self.current, "only a probe's answer is sent before the upgrade")
        case .closeWebSocket(let webSocket, _):
            self.expect(self.webSockets.remove(webSocket) != nil, "a WebSocket is closed once")
        case .upgraded(let webSocket):
            self.expect(self.current == nil, "a session upgrades once")
            self.current = webSocket
        case .deliver: self.expect(!self.isClosed, "nothing is delivered after the end")
        case .closed:
            self.expect(!self.isClosed, "a session ends once")
            self.isClosed = true
        }
    }

    mutating func check(_ session: EngineIOStateMachine) {
        self.expect(session.messagesProven <= session.messagesSent, "no more is proven than was sent")
        self.expect(session.waitingBytes >= 0, "the waiting bytes are never negative")
        self.expect(session.waitingBytes <= session.configuration.maximumWaiting + 128, "the waiting bytes are limited")
        self.expect(!session.waiting.isEmpty || session.waitingBytes == 0, "an empty queue has no waiting bytes")
        self.expect((session.transport == nil) == self.isClosed, "the end is reported")
    }

    mutating func finished(_ session: EngineIOStateMachine) {
        self.expect(session.transport == nil && self.isClosed, "a silent client times out")
        self.expect(self.requests.isEmpty, "every request is answered")
        self.expect(self.webSockets.isEmpty, "every WebSocket is closed")
    }

    /// Checks that a decoded payload encodes and decodes to the same packets.
    static func codecs(_ bytes: [UInt8]) -> String? {
        let read = { (body: [UInt8]) in
            try? EngineIOPayload.decode(body, maximumPackets: 1_000, maximumBytes: 1_000_000)
        }
        guard let packets = read(bytes) else { return nil }
        return read(EngineIOPayload.encode(packets)) == packets ? nil : "a payload survives decoding and encoding"
    }
}

/// Likely client input, so that scripts get past the first check.
enum SocketIOPhrases {
    /// Texts that are valid somewhere in the protocol.
    static let any: [String] = [
        "", "1", "2", "2probe", "3", "5", "6", "4", "40", "40/a,{\"pid\":\"P\",\"offset\":\"O\"}", "41", "41/a,",
        "42[\"e\"]", "421[\"e\",{\"a\":[1]}]", "42/a,7[\"e\"]", "430[]", "44{}", "42[\"connect\"]",
        "451-[\"e\",{\"_placeholder\":true,\"num\":0}]", "bAQID", "4\u{1E}4", "40\u{1E}42[\"e\"]", "abc",
    ]

    /// Returns valid next messages of a correct client.
    static func proper(isJoined: Bool) -> [String] {
        guard isJoined else { return ["0", #"0{"pid":"P","offset":"O"}"#, "0/a,"] }
        return [#"2["e"]"#, #"21["e",{"a":[1]}]"#, "30[]", "0/a,", "1/a,", "1"]
    }
}
