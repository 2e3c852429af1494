// Carillon · ConformanceHub.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols
import Sockets

/// `/hub`: a SignalR hub with test methods, open to everyone.
struct ConformanceHub: SignalRHub {
    static func endpoint(_ options: ConformanceOptions) -> SignalREndpoint {
        var configuration = SignalREndpointConfiguration(
            path: "/hub",
            connection: SignalRConfiguration(
                maximumMessageBytes: options.maximumPayload,
                keepAliveInterval: Int64(options.pingInterval),
                clientTimeout: Int64(options.pingInterval + options.pingTimeout)
            ),
            webSocket: WebSocketLimits(maximumMessage: max(options.maximumPayload, 1024 * 1024)),
            wallClock: { Timestamp(milliseconds: systemUptime()) }
        )
        configuration.allowsStatefulReconnect = options.allowsRecovery
        configuration.tick = .milliseconds(Int64(max(10, min(1000, options.pingInterval / 4))))
        return SignalREndpoint(
            hub: ConformanceHub(),
            configuration: configuration,
            makeID: { String(UInt64.random(in: .min ... .max), radix: 36) + "-\(UInt64.random(in: .min ... .max))" }
        )
    }

    func admit(_ caller: SignalRCaller) async throws -> SignalRPermit {
        SignalRPermit(owner: "anyone") { ConformanceHubApplication(connection: $0) }
    }
}

private final class ConformanceHubApplication: SignalRApplication {
    /// Nil once the connection has closed.
    private var connection: SignalRConnection?

    init(connection: SignalRConnection) {
        self.connection = connection
    }

    func signalROpened(_ connection: SignalRConnection) {}
    func signalRIsTooSlow() { self.connection?.drop() }
    func signalRClosed() { self.connection = nil }

    func signalRInvoked(_ call: SignalRCall) {
        let invocation = call.invocation
        let arguments = invocation.arguments
        let methods = ["Echo", "Add", "Stream", "Kick", "Drop"]
        guard let method = methods.first(where: { invocation.calls($0) }) else {
            return self.fail(call, SignalRErrorText.unknownMethod(invocation.target))
        }
        guard invocation.isStream == (method == "Stream") else {
            let error =
                invocation.isStream
                ? SignalRErrorText.plainMethodStreamed(invocation.target)
                : Self.streamingMethodInvoked(invocation.target)
            return self.fail(call, error)
        }
        switch (method, arguments.count) {
        case ("Echo", 1):
            let encoded = arguments.map { JSONWriter.bytes(of: $0) }
            self.connection?.send(SignalRRecord(target: "Receive", encodedArguments: encoded))
            self.connection?.complete(call.number, .result(arguments[0]))
        case ("Add", 2):
            guard let first = arguments[0].integer, let second = arguments[1].integer else {
                return self.fail(call, SignalRErrorText.failed(invocation.target, "Add takes whole numbers"))
            }
            let (sum, isTooLarge) = first.addingReportingOverflow(second)
            guard !isTooLarge else {
                return self.fail(call, SignalRErrorText.failed(invocation.target, "the sum is too large"))
            }
            self.connection?.complete(call.number, .result(.number(String(sum))))
        case ("Stream", 1):
            guard let count = arguments[0].integer, count >= 0 else {
                return self.fail(call, SignalRErrorText.failed(invocation.target, "Stream takes a count from 0"))
            }
            self.stream(call.number, 0..<count)
        case ("Kick", 1):
            self.connection?.close(error: "kicked", allowReconnect: arguments[0].bool ?? false)
        case ("Drop", 0):
            self.connection?.cut()
            self.connection?.complete(call.number, .void)
        default:
            self.fail(call, SignalRErrorText.failed(invocation.target, "wrong number of arguments"))
        }
    }

    private func fail(_ call: SignalRCall, _ error: String) {
        self.connection?.complete(call.number, .error(error))
    }

    /// Returns the reference server's error for a streaming method that was called for one answer.
    private static func streamingMethodInvoked(_ target: String) -> String {
        "The client attempted to invoke the streaming '\(target)' method with a non-streaming invocation."
    }

    /// Sends items in small turns, so that a client can cancel between them.
    private func stream(_ call: UInt64, _ items: Range<Int64>) {
        guard let connection else { return }
        let turn = items.prefix(100)
        let isWanted = turn.allSatisfy { connection.sendItem(.number(String($0)), of: call) }
        let rest = items.dropFirst(turn.count)
        if isWanted, !rest.isEmpty {
            let bound = NIOLoopBound(self, eventLoop: connection.eventLoop)
            connection.eventLoop.scheduleTask(in: .milliseconds(10)) { bound.value.stream(call, rest) }
        } else {
            connection.complete(call, .void)
        }
        connection.flush()
    }
}
