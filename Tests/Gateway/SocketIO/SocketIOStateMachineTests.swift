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
        #expect(trace.receive(#"0{"token":"x"}"#) == [#"join #1 {"token":"x"}"#])
        #expect(!trace.connection.hasJoined)
        #expect(trace.accept(1, sid: "S1") == [#"> 0{"sid":"S1"}"#])
        #expect(trace.connection.hasJoined)
        #expect(trace.accept(1, sid: "S2") == [])
        #expect(trace.refuse(1, "late") == [])
    }

    @Test("refuses with a message and optional data, and lets the client ask again")
    func refuses() {
        var trace = ConnectionTrace()
        _ = trace.receive("0")
        #expect(trace.refuse(1, "Not authorized") == [#"> 4{"message":"Not authorized"}"#])
        #expect(trace.receive("0") == ["join #2 {}"])
        let data = JSONValue.object([JSONMember("code", .number("7"))])
        #expect(trace.refuse(2, "no", data: data) == [#"> 4{"message":"no","data":{"code":7}}"#])
        #expect(trace.receive("0") == ["join #3 {}"])
        #expect(trace.accept(3, sid: "S") == [#"> 0{"sid":"S"}"#])
    }

    @Test("refuses another namespace without asking the owner, before and after the client has joined")
    func otherNamespaces() {
        var trace = ConnectionTrace()
        let refusal = #"> 4/admin,{"message":"Invalid namespace"}"#
        #expect(trace.receive("0/admin") == [refusal])
        #expect(trace.receive(#"0/admin,{"token":"x"}"#) == [refusal])
        #expect(trace.receive("1/admin,") == [])
        #expect(trace.receive("0/,") == ["join #1 {}"])
        #expect(trace.receive("0/admin,") == [refusal])
        _ = trace.accept(1, sid: "S")
        #expect(trace.receive("0/admin,") == [refusal])
        #expect(trace.receive("1/admin,") == [])
        #expect(trace.receive(#"2["a"]"#) == ["event a []"])
    }

    @Test("delivers events with name, arguments and acknowledgement, and acknowledges them")
    func events() {
        var trace = ConnectionTrace.joined()
        #expect(trace.receive(#"2["a",1,{"b":2}]"#) == [#"event a [1,{"b":2}]"#])
        #expect(trace.receive(#"212["a"]"#) == ["event a [] 12"])
        #expect(trace.receive("2[5]") == ["event 5 []"])
        #expect(trace.acknowledge(12, [.bool(true)]) == ["> 312[true]"])
        #expect(trace.acknowledge(0, [.string("a\u{1E}\u{2028}"), .null]) == ["> 30[\"a\\u001e\u{2028}\",null]"])
        #expect(trace.acknowledge(3) == ["> 33[]"])
        _ = trace.receive("1")
        #expect(trace.acknowledge(3) == [])
    }

    @Test("ignores acknowledgements, as the server awaits none")
    func acknowledgements() {
        var trace = ConnectionTrace.joined()
        for text in ["30[]", #"31["x"]"#] { #expect(trace.receive(text) == []) }
        #expect(trace.receive(#"2["on"]"#) == ["event on []"])
    }

    @Test("leaves on a client's DISCONNECT, without a reply, and lets it rejoin")
    func clientLeaves() {
        var trace = ConnectionTrace.joined()
        #expect(trace.receive("1") == ["left"])
        #expect(trace.receive("1") == [])
        #expect(trace.receive("0") == ["join #2 {}"])
        #expect(trace.accept(2, sid: "S2") == [#"> 0{"sid":"S2"}"#])
    }

    @Test("sends the server's DISCONNECT once")
    func serverLeaves() {
        var trace = ConnectionTrace.joined()
        #expect(trace.disconnect() == ["> 1", "left"])
        #expect(trace.disconnect() == [])
    }

    @Test("ignores the answer to a withdrawn CONNECT, also for the next one")
    func withdrawn() {
        var trace = ConnectionTrace()
        _ = trace.receive("0")
        #expect(trace.receive("1") == ["withdrawn #1"])
        #expect(trace.receive(#"0{"token":"other"}"#) == [#"join #2 {"token":"other"}"#])
        #expect(trace.accept(1, sid: "S1") == [])
        #expect(trace.refuse(1, "no") == [])
        #expect(!trace.connection.hasJoined)
        #expect(trace.accept(2, sid: "S2") == [#"> 0{"sid":"S2"}"#])
    }

    @Test(
        "closes the whole connection on a protocol violation",
        arguments: [
            "0", #"2/other,["a"]"#, "3/other,0[]", #"4{"message":"x"}"#, "2{}", #"2abc["a"]"#, "abc", "0[]",
            "0/other,[]", #"2["connect"]"#, #"51-["a",{"_placeholder":true,"num":0}]"#, "61-1[]",
        ])
    func violations(text: String) {
        var trace = ConnectionTrace.joined()
        #expect(trace.receive(text) == ["left", "close parseError"])
        #expect(trace.receive(#"2["a"]"#) == [])
        #expect(trace.tick(1_000_000) == [])
        #expect(trace.sessionClosed() == [])
    }

    @Test(
        "closes on a second CONNECT, and on an event or acknowledgement, while the owner decides",
        arguments: ["0", #"2["a"]"#, "30[]"])
    func undecidedViolations(text: String) {
        var trace = ConnectionTrace()
        _ = trace.receive("0")
        #expect(trace.receive(text) == ["withdrawn #1", "close parseError"])
        #expect(trace.accept(1, sid: "S") == [])
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

    @Test("closes a client that does not join in time, even after a refusal; an undecided one may try again")
    func connectTimeout() {
        var silent = ConnectionTrace()
        #expect(silent.connection.nextDeadline == 10_000)
        #expect(silent.tick(9_999) == [])
        #expect(silent.tick(10_000) == ["close forcedClose"])
        #expect(silent.connection.nextDeadline == nil)

        var refused = ConnectionTrace()
        _ = refused.receive("0", at: 9_000)
        _ = refused.refuse(1, "no")
        _ = refused.receive("0/other,", at: 9_500)
        #expect(refused.tick(10_000) == ["close forcedClose"])

        var undecided = ConnectionTrace()
        _ = undecided.receive("0", at: 9_000)
        #expect(undecided.tick(10_000) == ["withdrawn #1", "close tryAgainLater"])

        var joined = ConnectionTrace.joined()
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

    @Test("restarts the time when the client has left or was disconnected")
    func leftTimeout() {
        var trace = ConnectionTrace.joined()
        _ = trace.receive("1", at: 50_000)
        #expect(trace.connection.nextDeadline == 60_000)
        _ = trace.receive("0", at: 55_000)
        _ = trace.accept(2, sid: "S")
        #expect(trace.connection.nextDeadline == nil)
        _ = trace.disconnect(at: 70_000)
        #expect(trace.connection.nextDeadline == 80_000)
    }

    @Test("reports the end of the session once")
    func sessionEnds() {
        var trace = ConnectionTrace.joined()
        #expect(trace.sessionClosed() == ["left"])
        #expect(trace.sessionClosed() == [])
        #expect(trace.close(.forcedClose) == [])
    }

    @Test("reports that the client left before the owner's close")
    func close() {
        var trace = ConnectionTrace.joined()
        #expect(trace.close(.serverShuttingDown) == ["left", "close serverShuttingDown"])
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
            trace.receive(#"0{"pid":"P","offset":"O1","token":"x"}"#)
                == [#"join #1 {"pid":"P","offset":"O1","token":"x"}"#])
        #expect(trace.requests.first?.recovery?.pid == "P")
        #expect(trace.requests.first?.recovery?.offset == "O1")
        let missed = [#"2["a",1,"O2"]"#, #"2["b","O3"]"#]
        let grant = SocketIORecoveryGrant(pid: "P", missed: missed.map { Array($0.utf8) })
        let packets = #"> 2["a",1,"O2"] 2["b","O3"] 0{"sid":"S","pid":"P"}"#
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
/// `> 0{…}` sends packets, `join #1 {…}` asks the owner, `withdrawn #1`, `event a [1] 7` delivers,
/// `left`, `close reason`. Requests to join are numbered from 1.
struct ConnectionTrace {
    var connection: SocketIOStateMachine
    private(set) var requests: [SocketIOConnectRequest] = []

    init(_ configuration: SocketIOConfiguration = SocketIOConfiguration()) {
        self.connection = SocketIOStateMachine(configuration: configuration, now: 0)
    }

    /// A connection that has joined.
    static func joined() -> ConnectionTrace {
        var trace = ConnectionTrace()
        _ = trace.receive("0")
        _ = trace.accept(1, sid: "S")
        return trace
    }

    mutating func receive(_ text: String, at now: Milliseconds = 0) -> [String] {
        self.run { $0.receive(Array(text.utf8), now: now, into: &$1) }
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

    mutating func acknowledge(_ id: UInt64, _ arguments: [JSONValue] = []) -> [String] {
        self.run { $0.acknowledge(id, with: arguments, into: &$1) }
    }

    mutating func disconnect(at now: Milliseconds = 0) -> [String] {
        self.run { $0.disconnect(now: now, into: &$1) }
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
        case .send(let packets): "> " + packets.map { String(decoding: $0, as: UTF8.self) }.joined(separator: " ")
        case .connectRequested(let request): "join #\(self.number(request.ticket)) \(Self.text(request.auth))"
        case .connectWithdrawn(let ticket): "withdrawn #\(self.number(ticket))"
        case .event(let name, let arguments, let id):
            "event \(name) \(Self.text(.array(arguments)))" + (id.map { " \($0)" } ?? "")
        case .left: "left"
        case .close(let reason): "close \(reason)"
        }
    }

    private static func text(_ json: JSONValue) -> String {
        String(decoding: JSONWriter.bytes(of: json), as: UTF8.self)
    }
}
