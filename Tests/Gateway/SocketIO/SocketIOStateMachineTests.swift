// Carillon · SocketIOStateMachineTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Protocols

@Suite("Socket.IO connection", .timeLimit(.minutes(10)))
struct SocketIOStateMachineTests {
    @Test("asks the owner about a CONNECT and sends the socket's id on acceptance")
    func connects() {
        var trace = ConnectionTrace()
        #expect(trace.receive(#"0{"token":"x"}"#) == [#"join #1 / {"token":"x"}"#])
        #expect(!trace.connection.hasJoined())
        #expect(trace.accept(1, sid: "S1") == [#"> 0{"sid":"S1"}"#])
        #expect(trace.connection.hasJoined())
        #expect(trace.receive("0/admin,") == ["join #2 /admin {}"])
        #expect(trace.accept(2, sid: "S2") == [#"> 0/admin,{"sid":"S2"}"#])
        #expect(trace.accept(2, sid: "S3") == [])
        #expect(trace.refuse(1, "late") == [])
    }

    @Test("refuses with a message and optional data, and lets the client ask again")
    func refuses() {
        var trace = ConnectionTrace()
        _ = trace.receive("0")
        #expect(trace.refuse(1, "Not authorized") == [#"> 4{"message":"Not authorized"}"#])
        #expect(trace.receive("0/random") == ["join #2 /random {}"])
        let unknown = SocketIOStateMachine.unknownNamespace
        #expect(trace.refuse(2, unknown) == [#"> 4/random,{"message":"Invalid namespace"}"#])
        #expect(trace.receive("0") == ["join #3 / {}"])
        let data = JSONValue.object([JSONMember("code", .number("7"))])
        #expect(trace.refuse(3, "no", data: data) == [#"> 4{"message":"no","data":{"code":7}}"#])
        #expect(trace.receive("0") == ["join #4 / {}"])
        #expect(trace.accept(4, sid: "S") == [#"> 0{"sid":"S"}"#])
    }

    @Test("delivers and sends events with namespace, name, arguments and acknowledgement")
    func events() {
        var trace = ConnectionTrace.joined("/", "/admin")
        #expect(trace.receive(#"2["a",1,{"b":2}]"#) == [#"event / a [1,{"b":2}]"#])
        #expect(trace.receive(#"2/admin,12["a"]"#) == ["event /admin a [] 12"])
        #expect(trace.receive("2[5]") == ["event / number 5 []"])
        #expect(trace.acknowledge(12, [.json(.bool(true))], in: "/admin") == ["> 3/admin,12[true]"])
        #expect(trace.acknowledge(3) == ["> 33[]"])
        #expect(trace.emit("b", [.json(.string("x"))]) == [#"> 2["b","x"]"#])
        #expect(trace.emit("b", to: "/admin") == [#"> 2/admin,["b"]"#])
        #expect(trace.emit("b", to: "/other") == ["notJoined"])
        #expect(trace.acknowledge(1, in: "/other") == [])
    }

    @Test("carries bytes both ways, each packet with its attachments")
    func binary() {
        var trace = ConnectionTrace.joined("/")
        let head = #"["e",{"_placeholder":true,"num":0}]"#
        #expect(trace.receive("51-4\(head)") == [])
        #expect(trace.receive(bytes: [1, 2]) == [#"event / e [{"_placeholder":true,"num":0}] [1, 2] 4"#])
        #expect(trace.emit("e", [.bytes([3])]) == ["> 51-\(head) [3]"])
        #expect(trace.acknowledge(4, [.bytes([5])]) == [#"> 61-4[{"_placeholder":true,"num":0}] [5]"#])
    }

    @Test("ignores acknowledgements, as the server awaits none")
    func acknowledgements() {
        var trace = ConnectionTrace.joined("/", "/admin")
        for text in ["30[]", #"31["x"]"#, "3/admin,0[]"] { #expect(trace.receive(text) == []) }
        #expect(trace.receive(#"61-1[{"_placeholder":true,"num":0}]"#) == [])
        #expect(trace.receive(bytes: [1]) == [])
        #expect(trace.receive(#"2["on"]"#) == ["event / on []"])
    }

    @Test("leaves only the namespace of a client's DISCONNECT, without a reply, and lets it rejoin")
    func clientLeaves() {
        var trace = ConnectionTrace.joined("/", "/admin")
        #expect(trace.receive("1/admin,") == ["left /admin"])
        #expect(trace.receive("1/admin,") == [])
        #expect(trace.receive(#"2["a"]"#) == ["event / a []"])
        #expect(trace.emit("a", to: "/admin") == ["notJoined"])
        #expect(trace.receive("0/admin,") == ["join #3 /admin {}"])
        #expect(trace.accept(3, sid: "S3") == [#"> 0/admin,{"sid":"S3"}"#])
        #expect(trace.emit("a", to: "/admin") == [#"> 2/admin,["a"]"#])
    }

    @Test("sends the server's DISCONNECT and leaves only that namespace")
    func serverLeaves() {
        var trace = ConnectionTrace.joined("/", "/admin")
        #expect(trace.disconnect() == ["> 1", "left /"])
        #expect(trace.disconnect() == [])
        #expect(trace.disconnect("/admin") == ["> 1/admin,", "left /admin"])
    }

    @Test("ignores the answer to a withdrawn CONNECT, also for the next one")
    func withdrawn() {
        var trace = ConnectionTrace()
        _ = trace.receive("0")
        #expect(trace.receive("1") == ["withdrawn #1"])
        #expect(trace.receive(#"0{"token":"other"}"#) == [#"join #2 / {"token":"other"}"#])
        #expect(trace.accept(1, sid: "S1") == [])
        #expect(trace.refuse(1, "no") == [])
        #expect(!trace.connection.hasJoined())
        #expect(trace.accept(2, sid: "S2") == [#"> 0{"sid":"S2"}"#])
    }

    @Test(
        "closes the whole connection on a protocol violation",
        arguments: [
            "0", "0/asked,", #"2/other,["a"]"#, #"2/asked,["a"]"#, "3/other,0[]", #"4{"message":"x"}"#, "2{}",
            #"2abc["a"]"#, "abc", "0[]", #"2["connect"]"#,
        ])
    func violations(text: String) {
        var trace = ConnectionTrace.joined("/", "/admin")
        _ = trace.receive("0/asked,")
        #expect(trace.receive(text) == ["left /", "left /admin", "withdrawn #3", "close parseError"])
        #expect(trace.receive(#"2["a"]"#) == [])
        #expect(trace.emit("a") == ["notJoined"])
        #expect(trace.accept(3, sid: "S") == [])
        #expect(trace.tick(1_000_000) == [])
        #expect(trace.sessionClosed() == [])
    }

    @Test("closes on bytes without a packet and on text among attachments")
    func binaryViolations() {
        var stray = ConnectionTrace.joined("/")
        #expect(stray.receive(bytes: [1]) == ["left /", "close parseError"])
        var cut = ConnectionTrace.joined("/")
        _ = cut.receive(#"51-["e",{"_placeholder":true,"num":0}]"#)
        #expect(cut.receive(#"2["a"]"#) == ["left /", "close parseError"])
    }

    @Test("takes attachments only in a namespace that the client has joined", arguments: ["51-", "61-1"])
    func binaryUnjoined(head: String) {
        let payload = #"["e",{"_placeholder":true,"num":0}]"#
        var unjoined = ConnectionTrace()
        #expect(unjoined.receive("\(head)\(payload)") == ["close parseError"])
        var asked = ConnectionTrace()
        _ = asked.receive("0")
        #expect(asked.receive("\(head)\(payload)") == ["withdrawn #1", "close parseError"])
        var joined = ConnectionTrace.joined("/admin")
        #expect(joined.receive("\(head)\(payload)") == ["left /admin", "close parseError"])
    }

    @Test("closes if the attachments of a packet are late, counted from the packet")
    func lateAttachments() {
        let packet = #"52-["e",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#
        var late = ConnectionTrace.joined("/")
        _ = late.receive(packet, at: 1_000)
        #expect(late.receive(bytes: [1], at: 30_000) == [])
        #expect(late.connection.nextDeadline == 31_000)
        #expect(late.tick(30_999) == [])
        #expect(late.tick(31_000) == ["left /", "close forcedClose"])
        #expect(late.connection.nextDeadline == nil)

        var complete = ConnectionTrace.joined("/")
        _ = complete.receive(packet, at: 1_000)
        _ = complete.receive(bytes: [1], at: 2_000)
        #expect(complete.receive(bytes: [2], at: 3_000).count == 1)
        #expect(complete.connection.nextDeadline == nil)
        #expect(complete.tick(1_000_000) == [])
    }

    @Test("compares namespaces by bytes")
    func exactNamespaces() {
        var trace = ConnectionTrace.joined("/caf\u{E9}")
        #expect(trace.receive("0/cafe\u{301},") == ["join #2 /cafe\u{301} {}"])
        #expect(trace.receive("2/cafe\u{301},[\"a\"]").last == "close parseError")
    }

    @Test("limits namespaces and refuses a further one without asking the owner")
    func tooManyNamespaces() {
        var trace = ConnectionTrace.joined("/", configuration: SocketIOConfiguration(maximumNamespaces: 2))
        _ = trace.receive("0/a,")
        #expect(trace.receive("0/b,") == [#"> 4/b,{"message":"Too many namespaces"}"#])
        _ = trace.receive("1/a,")
        #expect(trace.receive("0/b,") == ["join #3 /b {}"])
    }

    @Test("gives an identified client more time to join, until it is refused")
    func identified() {
        var trace = ConnectionTrace()
        _ = trace.receive("0", at: 9_000)
        trace.identify(1)
        #expect(trace.tick(10_000) == [])
        #expect(trace.connection.nextDeadline == 20_000)
        _ = trace.refuse(1, "no")
        #expect(trace.tick(20_000) == ["close forcedClose"])
    }

    @Test("closes without a joined namespace in time, even after a refusal; an undecided client may try again")
    func connectTimeout() {
        var silent = ConnectionTrace()
        #expect(silent.connection.nextDeadline == 10_000)
        #expect(silent.tick(9_999) == [])
        #expect(silent.tick(10_000) == ["close forcedClose"])
        #expect(silent.connection.nextDeadline == nil)

        var refused = ConnectionTrace()
        _ = refused.receive("0", at: 9_000)
        _ = refused.refuse(1, "no")
        #expect(refused.tick(10_000) == ["close forcedClose"])

        var undecided = ConnectionTrace()
        _ = undecided.receive("0", at: 9_000)
        #expect(undecided.tick(10_000) == ["withdrawn #1", "close tryAgainLater"])

        var joined = ConnectionTrace.joined("/")
        #expect(joined.connection.nextDeadline == nil)
        #expect(joined.tick(1_000_000) == [])
    }

    @Test("does not extend the time for a withdrawn CONNECT")
    func withdrawnTimeout() {
        var trace = ConnectionTrace()
        _ = trace.receive("0", at: 5_000)
        _ = trace.receive("1", at: 6_000)
        _ = trace.receive("1", at: 7_000)
        #expect(trace.connection.nextDeadline == 10_000)
    }

    @Test("stays open when the last namespace was left, and lets the client rejoin at any time")
    func staysAfterLeaving() {
        var trace = ConnectionTrace.joined("/", "/admin")
        _ = trace.disconnect("/admin")
        #expect(trace.receive("1/,", at: 50_000) == ["left /"])
        #expect(trace.connection.nextDeadline == nil)
        #expect(trace.tick(1_000_000) == [])
        #expect(trace.receive("0", at: 1_000_000) == ["join #3 / {}"])
        _ = trace.refuse(3, "no")
        #expect(trace.tick(2_000_000) == [])
        _ = trace.receive("0", at: 2_000_000)
        #expect(trace.accept(4, sid: "S") == [#"> 0{"sid":"S"}"#])
        #expect(trace.connection.nextDeadline == nil)
    }

    @Test("reports the end of the session for every namespace, once")
    func sessionEnds() {
        var trace = ConnectionTrace.joined("/", "/admin")
        #expect(trace.sessionClosed() == ["left /", "left /admin"])
        #expect(trace.sessionClosed() == [])
        #expect(trace.close(.forcedClose) == [])
    }

    @Test("reports every namespace before the owner's close")
    func close() {
        var trace = ConnectionTrace.joined("/")
        #expect(trace.close(.serverShuttingDown) == ["left /", "close serverShuttingDown"])
        #expect(trace.close(.forcedClose) == [])
    }
}

@Suite("Connection state recovery", .timeLimit(.minutes(10)))
struct SocketIORecoveryTests {
    private static let offering = SocketIOConfiguration(offersRecovery: true)

    @Test("is off by default and leaves pid and offset to the application")
    func off() {
        var trace = ConnectionTrace()
        _ = trace.receive(#"0{"pid":"P","offset":"O"}"#)
        #expect(trace.requests.map(\.recovery) == [nil])
        #expect(trace.accept(1, sid: "S") == [#"> 0{"sid":"S"}"#])
    }

    @Test("gives a new client a pid")
    func grants() {
        var trace = ConnectionTrace(Self.offering)
        _ = trace.receive(#"0{"token":"x"}"#)
        #expect(trace.requests.map(\.recovery) == [nil])
        #expect(trace.accept(1, sid: "S", recovery: .init(pid: "P")) == [#"> 0{"sid":"S","pid":"P"}"#])
    }

    @Test("sends a returning client what it missed, in order, before the reply with its old ids")
    func recovers() {
        var trace = ConnectionTrace(Self.offering)
        #expect(
            trace.receive(#"0/n,{"pid":"P","offset":"O1","token":"x"}"#)
                == [#"join #1 /n {"pid":"P","offset":"O1","token":"x"}"#])
        #expect(trace.requests.first?.recovery?.pid == "P")
        #expect(trace.requests.first?.recovery?.offset == "O1")
        let grant = SocketIORecoveryGrant(
            pid: "P",
            missed: [.init("a", [.json(.number("1"))], offset: "O2"), .init("b", [.bytes([7])], offset: "O3")]
        )
        let packets =
            #"> 2/n,["a",1,"O2"] 51-/n,["b",{"_placeholder":true,"num":0},"O3"] [7] 0/n,{"sid":"S","pid":"P"}"#
        #expect(trace.accept(1, sid: "S", recovery: grant) == [packets])
    }

    @Test(
        "ignores an incomplete or mistyped recovery request",
        arguments: [
            #"{"pid":"P"}"#, #"{"offset":"O"}"#, #"{"pid":1,"offset":"O"}"#, #"{"pid":"P","offset":null}"#, "{}",
        ])
    func half(auth: String) {
        var trace = ConnectionTrace(Self.offering)
        _ = trace.receive("0\(auth)")
        #expect(trace.requests.map(\.recovery) == [nil])
    }
}

/// A connection and its actions, one short line each.
///
/// `> 0{…}` sends a packet (bytes follow in brackets), `join #1 / {…}` asks the owner, `withdrawn
/// #1`, `event / a [1] 7` delivers, `left /`, `close reason`. Requests to join are numbered from 1.
struct ConnectionTrace {
    var connection: SocketIOStateMachine
    private(set) var requests: [SocketIOConnectRequest] = []

    init(_ configuration: SocketIOConfiguration = SocketIOConfiguration()) {
        self.connection = SocketIOStateMachine(configuration: configuration, now: 0)
    }

    /// A connection that has joined these namespaces.
    static func joined(
        _ namespaces: String..., configuration: SocketIOConfiguration = SocketIOConfiguration()
    ) -> ConnectionTrace {
        var trace = ConnectionTrace(configuration)
        for namespace in namespaces {
            _ = trace.receive("0\(namespace),")
            _ = trace.accept(trace.requests.count, sid: "S")
        }
        return trace
    }

    mutating func receive(_ text: String, at now: Milliseconds = 0) -> [String] {
        self.run { $0.receive(.text(Array(text.utf8)), now: now, into: &$1) }
    }

    mutating func receive(bytes: [UInt8], at now: Milliseconds = 0) -> [String] {
        self.run { $0.receive(.binary(bytes), now: now, into: &$1) }
    }

    mutating func identify(_ request: Int) { self.connection.identify(self.requests[request - 1].ticket) }

    mutating func accept(_ request: Int, sid: String, recovery: SocketIORecoveryGrant? = nil) -> [String] {
        let ticket = self.requests[request - 1].ticket
        return self.run { $0.accept(ticket, sid: sid, recovery: recovery, into: &$1) }
    }

    mutating func refuse(_ request: Int, _ message: String, data: JSONValue? = nil) -> [String] {
        let ticket = self.requests[request - 1].ticket
        return self.run { $0.refuse(ticket, message: message, data: data, into: &$1) }
    }

    mutating func emit(
        _ name: SocketIOEventName, _ arguments: [SocketIOValue] = [], to namespace: String = "/"
    ) -> [String] {
        var isSent = false
        let lines = self.run { isSent = $0.emit(name, arguments, to: namespace, into: &$1) }
        return isSent ? lines : lines + ["notJoined"]
    }

    mutating func acknowledge(_ id: UInt64, _ arguments: [SocketIOValue] = [], in namespace: String = "/") -> [String] {
        self.run { $0.acknowledge(id, with: arguments, in: namespace, into: &$1) }
    }

    mutating func disconnect(_ namespace: String = "/") -> [String] {
        self.run { $0.disconnect(namespace, into: &$1) }
    }

    mutating func close(_ reason: EngineIOCloseReason) -> [String] {
        self.run { $0.close(reason, into: &$1) }
    }

    mutating func sessionClosed() -> [String] {
        self.run { $0.sessionClosed(into: &$1) }
    }

    mutating func tick(_ now: Milliseconds) -> [String] {
        self.run { $0.tick(now: now, into: &$1) }
    }

    private mutating func run(_ call: (inout SocketIOStateMachine, inout [SocketIOAction]) -> Void) -> [String] {
        var actions: [SocketIOAction] = []
        call(&self.connection, &actions)
        for case .connectRequested(let request) in actions { self.requests.append(request) }
        return actions.map { self.line($0) }
    }

    private func number(_ ticket: SocketIOConnectRequest.Ticket) -> Int {
        (self.requests.firstIndex { $0.ticket == ticket } ?? -1) + 1
    }

    private func line(_ action: SocketIOAction) -> String {
        switch action {
        case .send(let messages): "> " + messages.map { Self.text($0) }.joined(separator: " ")
        case .connectRequested(let request):
            "join #\(self.number(request.ticket)) \(request.namespace) \(Self.text(JSONWriter.bytes(of: request.auth)))"
        case .connectWithdrawn(let ticket): "withdrawn #\(self.number(ticket))"
        case .event(let namespace, let name, let arguments, let id):
            "event \(namespace) \(Self.text(name)) \(Self.text(arguments))" + (id.map { " \($0)" } ?? "")
        case .left(let namespace): "left \(namespace)"
        case .close(let reason): "close \(reason)"
        }
    }

    private static func text(_ name: SocketIOEventName) -> String {
        switch name {
        case .text(let text): text
        case .number(let text): "number \(text)"
        }
    }

    private static func text(_ arguments: [SocketIOValue]) -> String {
        let packet = SocketIOPacket(.acknowledgement(0, arguments)).messages
        return packet.map { Self.text($0) }.joined(separator: " ").replacing(#/^(?:30|6\d+-0)/#, with: "")
    }

    private static func text(_ message: EngineIOMessage) -> String {
        switch message {
        case .text(let bytes): Self.text(bytes)
        case .binary(let bytes): "\(bytes)"
        }
    }

    private static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes, as: UTF8.self)
    }
}
