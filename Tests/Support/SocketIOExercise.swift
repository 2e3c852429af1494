// Carillon · SocketIOExercise.swift
// SPDX-License-Identifier: Apache-2.0

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
            self.session.webSocketBinary(webSocket, self.phrase(), now: now, into: &actions)
        case 11: self.session.send([.text(self.phrase()), .binary([1])], into: &actions)
        case 12:
            var wanted: [SocketIOAction] = []
            self.connection.emit("m", [.bytes([1])], into: &wanted)
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

    /// Answers a ping and sends valid messages over the current transport.
    private mutating func answer(into actions: inout [EngineIOAction]) {
        let choice = Int(self.script.popFirst() ?? 0)
        let namespace = choice % 4 == 0 ? "/a" : "/"
        let choices = SocketIOPhrases.proper(in: namespace, isJoined: self.connection.hasJoined(namespace))
        let phrases = choices[choice % choices.count]
        if let webSocket = self.guarantees.current {
            self.session.webSocketText(webSocket, Array("3".utf8), now: self.now, into: &actions)
            for message in phrases {
                switch message {
                case .text(let text):
                    let packet = Array("4".utf8) + text
                    self.session.webSocketText(webSocket, packet, now: self.now, into: &actions)
                case .binary(let bytes): self.session.webSocketBinary(webSocket, bytes, now: self.now, into: &actions)
                }
            }
        } else if self.posts.isEmpty {
            let request = self.carrier()
            self.guarantees.asked(request)
            let body = EngineIOPayload.encode([.pong([])] + phrases.map { .message($0) })
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
            case .send(let messages): self.session.send(messages, into: &actions)
            case .connectRequested(let request) where self.script.first.map { $0 % 4 == 0 } ?? false:
                self.connection.refuse(request.ticket, message: "no", into: &answers)
            case .connectRequested(let request):
                let grant = request.recovery.map {
                    SocketIORecoveryGrant(pid: $0.pid, missed: [.init("m", [], offset: "O")])
                }
                self.connection.accept(request.ticket, sid: "C", recovery: grant, into: &answers)
            case .event(let namespace, let name, let arguments, let id):
                if let id { self.connection.acknowledge(id, with: arguments, in: namespace, into: &answers) }
                self.connection.emit(name, arguments, to: namespace, into: &answers)
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
        case .sendBinary(let webSocket, _):
            self.expect(self.webSockets.contains(webSocket), "nothing is sent on a closed WebSocket")
            self.expect(webSocket == self.current, "nothing is sent before the upgrade")
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

    /// Checks that decoded input encodes and decodes to the same value.
    static func codecs(_ bytes: [UInt8]) -> String? {
        if let packets = try? EngineIOPayload.decode(bytes, maximumPackets: 1_000, maximumBytes: 1_000_000) {
            let again = try? EngineIOPayload.decode(
                EngineIOPayload.encode(packets), maximumPackets: 1_000, maximumBytes: 1_000_000)
            if again != packets { return "a payload survives decoding and encoding" }
        }
        let configuration = SocketIOConfiguration()
        var decoder = SocketIODecoder(configuration: configuration)
        guard let packet = try? decoder.read(.text(bytes)) else { return nil }
        var second = SocketIODecoder(configuration: configuration)
        let again = packet.messages.compactMap { (try? second.read($0)) ?? nil }
        return again == [packet] ? nil : "a packet survives decoding and encoding"
    }
}

/// Likely client input, so that scripts get past the first check.
enum SocketIOPhrases {
    /// Texts that are valid somewhere in the protocol.
    static let any: [String] = [
        "", "1", "2", "2probe", "3", "5", "6", "4", "40", "40/a,{\"pid\":\"P\",\"offset\":\"O\"}", "41", "41/a,",
        "42[\"e\"]", "421[\"e\",{\"a\":[1]}]", "42/a,7[\"e\"]", "430[]", "44{}", "42[\"connect\"]",
        "452-[\"e\",{\"_placeholder\":true,\"num\":1},[{\"_placeholder\":true,\"num\":0}]]", "451-[\"e\"]",
        "bAQID", "4\u{1E}4", "40\u{1E}42[\"e\"]\u{1E}bAA==", "abc",
    ]

    /// Returns valid next messages of a correct client, each with its attachments.
    static func proper(in namespace: String, isJoined: Bool) -> [[EngineIOMessage]] {
        let head = namespace == SocketIOPacket.defaultNamespace ? "" : "\(namespace),"
        guard isJoined else {
            return [[Self.text("0\(head)")], [Self.text("0\(head){\"pid\":\"P\",\"offset\":\"O\"}")]]
        }
        let placeholders = (0..<2).map { "{\"_placeholder\":true,\"num\":\($0)}" }
        return [
            [Self.text("2\(head)[\"e\"]")], [Self.text("2\(head)1[\"e\",{\"a\":[1]}]")], [Self.text("3\(head)0[]")],
            [Self.text("51-\(head)[\"e\",\(placeholders[0])]"), .binary([1, 2])],
            [Self.text("52-\(head)3[\"e\",\(placeholders[1]),[\(placeholders[0])]]"), .binary([1]), .binary([])],
            [Self.text("61-\(head)1[\(placeholders[0])]"), .binary([3])], [Self.text("1\(head)")],
        ]
    }

    private static func text(_ text: String) -> EngineIOMessage { .text(Array(text.utf8)) }
}
