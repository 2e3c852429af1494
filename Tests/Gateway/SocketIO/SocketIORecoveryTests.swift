// Carillon · SocketIORecoveryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@Suite("Recovery of a connection's state", .timeLimit(.minutes(10)))
struct SocketIORecoveryTests {
    private static let offering = SocketIOConfiguration(offersRecovery: true)

    @Test("Off by default: a pid and an offset are the application's own")
    func off() {
        var trace = ConnectionTrace()
        _ = trace.receive(#"0{"pid":"P","offset":"O"}"#)
        #expect(trace.requests.map(\.recovery) == [nil])
        #expect(trace.accept(1, sid: "S") == [#"> 0{"sid":"S"}"#])
        #expect(trace.emit("a", as: .recoverable(offset: "O1")) == [#"> 2["a"]"#])
    }

    @Test("A new client gets a pid, and events carry their offset at the end")
    func grants() {
        var trace = ConnectionTrace(Self.offering)
        _ = trace.receive(#"0{"token":"x"}"#)
        #expect(trace.requests.map(\.recovery) == [nil])
        #expect(trace.accept(1, sid: "S", recovery: .init(pid: "P")) == [#"> 0{"sid":"S","pid":"P"}"#])
        #expect(trace.emit("tick", [.json(.number("0"))], as: .recoverable(offset: "Q7")) == [#"> 2["tick",0,"Q7"]"#])
        #expect(trace.emit("tick", as: .plain) == [#"> 2["tick"]"#])
        #expect(trace.emit("ask", as: .acknowledged) == [#"> 20["ask"]"#, "awaiting(0)"])
    }

    @Test("A client that comes back gets what it missed, in order, before the reply with its old ids")
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
        #expect(trace.emit("c", to: "/n", as: .recoverable(offset: "O4")) == [#"> 2/n,["c","O4"]"#])
    }

    @Test(
        "Half a request, or one of other types, is none",
        arguments: [
            #"{"pid":"P"}"#, #"{"offset":"O"}"#, #"{"pid":1,"offset":"O"}"#, #"{"pid":"P","offset":null}"#, "{}",
        ])
    func half(auth: String) {
        var trace = ConnectionTrace(Self.offering)
        _ = trace.receive("0\(auth)")
        #expect(trace.requests.map(\.recovery) == [nil])
    }

    @Test("After either side's DISCONNECT, or nonsense, nothing can be recovered")
    func reasons() {
        let lost: Set<SocketIODisconnectReason> = [.parseError, .clientNamespaceDisconnect, .serverNamespaceDisconnect]
        for reason in SocketIODisconnectReason.allCases { #expect(reason.isRecoverable == !lost.contains(reason)) }
    }
}
