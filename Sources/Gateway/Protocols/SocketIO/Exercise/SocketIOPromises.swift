// Carillon · SocketIOPromises.swift
// SPDX-License-Identifier: Apache-2.0

/// What a session promises its owner, checked action by action.
struct SocketIOPromises {
    private var requests: Set<EngineIOCarrier> = []
    private var webSockets: Set<EngineIOCarrier> = []
    /// The WebSocket that the session travels on.
    private(set) var current: EngineIOCarrier?
    private var isClosed = false
    /// The first promise that was broken.
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

    private mutating func expect(_ isKept: Bool, _ promise: String) {
        if !isKept, self.broken == nil { self.broken = promise }
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

    mutating func check(_ session: EngineIOSession) {
        self.expect(session.messagesProven <= session.messagesSent, "no more is proven than was sent")
        self.expect(session.waitingBytes >= 0, "what waits is counted")
        self.expect(session.waitingBytes <= session.configuration.maximumWaiting + 128, "what waits is bounded")
        self.expect(!session.waiting.isEmpty || session.waitingBytes == 0, "what waits is counted exactly")
        self.expect((session.transport == nil) == self.isClosed, "the end is told")
    }

    mutating func finished(_ session: EngineIOSession) {
        self.expect(session.transport == nil && self.isClosed, "a silent client is given up")
        self.expect(self.requests.isEmpty, "every request is answered")
        self.expect(self.webSockets.isEmpty, "every WebSocket is closed")
    }

    /// What is read can be written, and is then read as the same.
    static func codecs(_ bytes: [UInt8]) -> String? {
        if let packets = try? EngineIOPayload.decode(bytes, maximumPackets: 1_000, maximumBytes: 1_000_000) {
            let again = try? EngineIOPayload.decode(
                EngineIOPayload.encode(packets), maximumPackets: 1_000, maximumBytes: 1_000_000)
            if again != packets { return "a payload is written as it was read" }
        }
        let configuration = SocketIOConfiguration()
        var decoder = SocketIODecoder(configuration: configuration)
        guard let packet = try? decoder.read(.text(bytes)) else { return nil }
        var second = SocketIODecoder(configuration: configuration)
        let again = packet.messages.compactMap { (try? second.read($0)) ?? nil }
        return again == [packet] ? nil : "a packet is written as it was read"
    }
}
