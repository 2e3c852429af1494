// Carillon · SocketIOConnectionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@Suite("A connection of Socket.IO", .timeLimit(.minutes(10)))
struct SocketIOConnectionTests {
    @Test("The owner decides about a CONNECT; accepted, the client gets its socket's id")
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

    @Test("A refusal has a message and, if given, data; the connection stays and the client may ask again")
    func refuses() {
        var trace = ConnectionTrace()
        _ = trace.receive("0")
        #expect(trace.refuse(1, "Not authorized") == [#"> 4{"message":"Not authorized"}"#])
        #expect(trace.receive("0/random") == ["join #2 /random {}"])
        let unknown = SocketIOConnection.unknownNamespace
        #expect(trace.refuse(2, unknown) == [#"> 4/random,{"message":"Invalid namespace"}"#])
        #expect(trace.receive("0") == ["join #3 / {}"])
        let data = JSONValue.object([JSONMember("code", .number("7"))])
        #expect(trace.refuse(3, "no", data: data) == [#"> 4{"message":"no","data":{"code":7}}"#])
        #expect(trace.receive("0") == ["join #4 / {}"])
        #expect(trace.accept(4, sid: "S") == [#"> 0{"sid":"S"}"#])
    }

    @Test("Events come with their namespace, name, arguments and acknowledgement, and go the same way")
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

    @Test("Bytes go both ways, a packet with its attachments together")
    func binary() {
        var trace = ConnectionTrace.joined("/")
        let head = #"["e",{"_placeholder":true,"num":0}]"#
        #expect(trace.receive("51-4\(head)") == [])
        #expect(trace.receive(bytes: [1, 2]) == [#"event / e [{"_placeholder":true,"num":0}] [1, 2] 4"#])
        #expect(trace.emit("e", [.bytes([3])]) == ["> 51-\(head) [3]"])
        #expect(trace.acknowledge(4, [.bytes([5])]) == [#"> 61-4[{"_placeholder":true,"num":0}] [5]"#])
    }

    @Test("Acknowledgements are counted from 0 in each namespace; unknown and second ones are ignored")
    func acknowledgements() {
        var trace = ConnectionTrace.joined("/", "/admin")
        #expect(trace.emit("a", as: .acknowledged) == [#"> 20["a"]"#, "awaiting(0)"])
        #expect(trace.emit("a", as: .acknowledged) == [#"> 21["a"]"#, "awaiting(1)"])
        #expect(trace.emit("a", to: "/admin", as: .acknowledged) == [#"> 2/admin,0["a"]"#, "awaiting(0)"])
        #expect(trace.receive(#"31["x"]"#) == [#"ack / 1 ["x"]"#])
        #expect(trace.receive("31[]") == [])
        #expect(trace.receive("39[]") == [])
        #expect(trace.receive("3/admin,0[]") == ["ack /admin 0 []"])
        trace.connection.forget(0)
        #expect(trace.receive("30[]") == [])
        #expect(trace.receive(#"2["on"]"#) == ["event / on []"])
    }

    @Test("Awaited acknowledgements are bounded; at the bound nothing is sent until one is settled")
    func awaited() {
        var trace = ConnectionTrace.joined("/", configuration: SocketIOConfiguration(maximumAwaitedAcknowledgements: 2))
        _ = trace.emit("a", as: .acknowledged)
        _ = trace.emit("a", as: .acknowledged)
        #expect(trace.emit("a", as: .acknowledged) == ["tooManyAwaited"])
        #expect(trace.emit("a") == [#"> 2["a"]"#])
        _ = trace.receive("30[]")
        #expect(trace.emit("a", as: .acknowledged) == [#"> 22["a"]"#, "awaiting(2)"])
        trace.connection.forget(1)
        #expect(trace.emit("a", as: .acknowledged) == [#"> 23["a"]"#, "awaiting(3)"])
    }

    @Test("A client's DISCONNECT leaves that namespace alone, without a reply; it may join again")
    func clientLeaves() {
        var trace = ConnectionTrace.joined("/", "/admin")
        #expect(trace.receive("1/admin,") == ["left /admin client namespace disconnect"])
        #expect(trace.receive("1/admin,") == [])
        #expect(trace.receive(#"2["a"]"#) == ["event / a []"])
        #expect(trace.emit("a", to: "/admin") == ["notJoined"])
        #expect(trace.receive("0/admin,") == ["join #3 /admin {}"])
        #expect(trace.accept(3, sid: "S3") == [#"> 0/admin,{"sid":"S3"}"#])
        #expect(trace.emit("a", to: "/admin", as: .acknowledged) == [#"> 2/admin,0["a"]"#, "awaiting(0)"])
    }

    @Test("The server's DISCONNECT is told to the client and leaves that namespace alone")
    func serverLeaves() {
        var trace = ConnectionTrace.joined("/", "/admin")
        #expect(trace.disconnect() == ["> 1", "left / server namespace disconnect"])
        #expect(trace.disconnect() == [])
        #expect(trace.disconnect("/admin") == ["> 1/admin,", "left /admin server namespace disconnect"])
    }

    @Test("A wish that the client takes back cannot be granted, nor meet the next one")
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
        "What breaks the protocol closes the whole connection",
        arguments: [
            ("0", "alreadyConnected"), ("0/asked,", "alreadyConnected"), (#"2/other,["a"]"#, "notConnected"),
            (#"2/asked,["a"]"#, "notConnected"), ("3/other,0[]", "notConnected"),
            (#"4{"message":"x"}"#, "connectErrorFromClient"), ("2{}", "eventPayload"), (#"2abc["a"]"#, "invalidJSON"),
            ("abc", "unknownType"), ("0[]", "connectPayload"), (#"2["connect"]"#, "reservedEventName"),
        ])
    func violations(text: String, reason: String) {
        var trace = ConnectionTrace.joined("/", "/admin")
        _ = trace.receive("0/asked,")
        let ends = ["left / parse error", "left /admin parse error", "withdrawn #3", "close \(reason)"]
        #expect(trace.receive(text) == ends)
        #expect(trace.receive(#"2["a"]"#) == [])
        #expect(trace.emit("a") == ["notJoined"])
        #expect(trace.accept(3, sid: "S") == [])
        #expect(trace.tick(1_000_000) == [])
        #expect(trace.sessionClosed(.parseError) == [])
    }

    @Test("Bytes without a packet, and a text among attachments, close the connection")
    func binaryViolations() {
        var stray = ConnectionTrace.joined("/")
        #expect(stray.receive(bytes: [1]) == ["left / parse error", "close unexpectedBinary"])
        var cut = ConnectionTrace.joined("/")
        _ = cut.receive(#"51-["e",{"_placeholder":true,"num":0}]"#)
        #expect(cut.receive(#"2["a"]"#) == ["left / parse error", "close textWithinBinary"])
    }

    @Test("Namespaces are compared by their bytes")
    func exactNamespaces() {
        var trace = ConnectionTrace.joined("/caf\u{E9}")
        #expect(trace.receive("0/cafe\u{301},") == ["join #2 /cafe\u{301} {}"])
        #expect(trace.receive("2/cafe\u{301},[\"a\"]").last == "close notConnected")
    }

    @Test("Namespaces are bounded; a further one is refused without asking")
    func tooManyNamespaces() {
        var trace = ConnectionTrace.joined("/", configuration: SocketIOConfiguration(maximumNamespaces: 2))
        _ = trace.receive("0/a,")
        #expect(trace.receive("0/b,") == [#"> 4/b,{"message":"Too many namespaces"}"#])
        _ = trace.receive("1/a,")
        #expect(trace.receive("0/b,") == ["join #3 /b {}"])
    }

    @Test("Without a joined namespace in time the connection closes, also after a refusal")
    func connectTimeout() {
        var silent = ConnectionTrace()
        #expect(silent.connection.nextDeadline == 10_000)
        #expect(silent.tick(9_999) == [])
        #expect(silent.tick(10_000) == ["close connectTimeout"])
        #expect(silent.connection.nextDeadline == nil)

        var refused = ConnectionTrace()
        _ = refused.receive("0", at: 9_000)
        _ = refused.refuse(1, "no")
        #expect(refused.tick(10_000) == ["close connectTimeout"])

        var undecided = ConnectionTrace()
        _ = undecided.receive("0", at: 9_000)
        #expect(undecided.tick(10_000) == ["withdrawn #1", "close connectTimeout"])

        var joined = ConnectionTrace.joined("/")
        #expect(joined.connection.nextDeadline == nil)
        #expect(joined.tick(1_000_000) == [])
    }

    @Test("A wish that is taken back gives no more time")
    func withdrawnTimeout() {
        var trace = ConnectionTrace()
        _ = trace.receive("0", at: 5_000)
        _ = trace.receive("1", at: 6_000)
        _ = trace.receive("1", at: 7_000)
        #expect(trace.connection.nextDeadline == 10_000)
    }

    @Test("When the last namespace is left the time begins anew")
    func leftTimeout() {
        var trace = ConnectionTrace.joined("/", "/admin")
        _ = trace.receive("1", at: 50_000)
        #expect(trace.connection.nextDeadline == nil)
        _ = trace.disconnect("/admin", at: 60_000)
        #expect(trace.connection.nextDeadline == 70_000)
        _ = trace.receive("0", at: 65_000)
        _ = trace.accept(3, sid: "S")
        #expect(trace.connection.nextDeadline == nil)
    }

    @Test("The end of the session is reported for every namespace with its reason")
    func sessionEnds() {
        let table: [(EngineIOCloseReason, String)] = [
            (.transportClose, "transport close"), (.transportError, "transport error"), (.pingTimeout, "ping timeout"),
            (.parseError, "parse error"), (.forcedClose, "forced close"),
            (.serverShuttingDown, "server shutting down"), (.overlappingPolls, "transport error"),
            (.tooMuchWaiting, "transport error"),
        ]
        for (reason, words) in table {
            var trace = ConnectionTrace.joined("/", "/admin")
            #expect(trace.sessionClosed(reason) == ["left / \(words)", "left /admin \(words)"])
            #expect(trace.sessionClosed(reason) == [])
            #expect(trace.close(.forced) == [])
        }
    }

    @Test("The owner's close reports every namespace and then closes")
    func close() {
        var trace = ConnectionTrace.joined("/")
        #expect(trace.close(.serverShuttingDown) == ["left / server shutting down", "close serverShuttingDown"])
        var forced = ConnectionTrace.joined("/")
        #expect(forced.close(.forced) == ["left / forced server close", "close forced"])
        #expect(SocketIOCloseReason.fault(.invalidJSON).session == .parseError)
        #expect(SocketIOCloseReason.connectTimeout.session == .forcedClose)
        #expect(SocketIOCloseReason.serverShuttingDown.session == .serverShuttingDown)
        #expect(SocketIOCloseReason.tryAgainLater.session == .tryAgainLater)
        #expect(SocketIOCloseReason.tokenExpired.session == .tokenExpired)
    }
}
