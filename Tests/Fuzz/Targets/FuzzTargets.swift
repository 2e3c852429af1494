// Carillon · FuzzTargets.swift
// SPDX-License-Identifier: Apache-2.0

/// All targets by their names, which are those of their folders in the corpus.
enum FuzzTargets {
    static let names = ["query", "resp", "signalr", "socketio", "token", "websocket"]

    static func make(_ name: String) -> (any FuzzTarget)? {
        switch name {
        case "query": QueryTarget()
        case "resp": RESPTarget()
        case "signalr": SignalRTarget()
        case "socketio": SocketIOTarget()
        case "token": TokenTarget()
        case "websocket": WebSocketTarget()
        default: nil
        }
    }
}
