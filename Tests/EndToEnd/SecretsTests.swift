// Carillon · SecretsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// Credentials are never written down.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SecretsTests {
    @Test("no token, ticket or query appears in metrics or in a log at level trace")
    func log() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["LOG_LEVEL": "trace", "AUTH_COOKIE": "session"])
            let tokens = [
                "header": try await Stack.token(user: "header"), "protocol": try await Stack.token(user: "protocol"),
                "query": try await Stack.token(user: "query"), "message": try await Stack.token(user: "message"),
                "connect": try await Stack.token(user: "connect"), "cookie": try await Stack.token(user: "cookie"),
                "scheme": try await Stack.token(user: "scheme"),
                "ticket": "ticket-secret-of-one-use-0123456789",
            ]
            let canary = "canary-in-the-query"
            let pushToken = "canary-in-the-path"
            func token(_ name: String) -> String { tokens[name] ?? "" }
            _ = try await gateway.call(.get, "/v1/notifications?limit=1&x=\(canary)", token: token("header"))
            _ = try await gateway.call(.get, "/v1/nothing?access_token=\(token("query"))", token: token("header"))
            _ = try await gateway.call(.get, "/v1/notifications", token: token("header") + "x")
            _ = try await gateway.call(
                .get, "/v1/stream?access_token=\(token("query"))&ticket=\(token("ticket"))", token: nil)
            for path in ["apns", "gcm", "nothing"] {
                for end in ["", "/", "/x"] {
                    let named = "/api/push/\(path)/\(pushToken)\(end)"
                    let answer = try await gateway.call(.delete, named, token: token("header"))
                    #expect(answer.status == 404)
                }
            }
            let paths = [
                "/v1/socket?access_token=\(token("query"))", "/v1/socket?ticket=\(token("ticket"))",
                "/hubs/notifications?access_token=\(token("query"))",
                "/socket.io/?EIO=4&transport=polling&token=\(token("query"))",
            ]
            for path in paths { _ = try await gateway.call(.get, path, token: nil) }
            // In the headers and messages of compatibility clients, valid and invalid.
            for end in ["", "x"] {
                let cookie = (name: "cookie", value: "session=\(token("cookie"))\(end)")
                let scheme = (name: "authorization", value: "Token \(token("scheme"))\(end)")
                for header in [cookie, scheme] {
                    let answer = try await gateway.call(.get, "/api/push/devices", token: nil, headers: [header])
                    #expect(answer.status == (end.isEmpty ? 200 : 401), "\(header.name)")
                }
                let engine = try await TestEngine.open(port: gateway.port, http: stack.http)
                try await engine.post(#"40{"token":"\#(token("connect"))\#(end)"}"#)
                _ = try await engine.poll(until: end.isEmpty ? "40" : "44")
            }
            let viaProtocol = try await TestSocket.open(
                port: gateway.port,
                token: nil,
                query: "?access_token=\(token("query"))&ticket=\(token("ticket"))",
                headers: ["Sec-WebSocket-Protocol": "carillon.v1, bearer.\(token("protocol"))"]
            )
            try await eventually("it is decided") { viaProtocol.status != nil }
            let viaMessage = try await TestSocket.open(port: gateway.port, token: nil)
            try await eventually("it is up") { viaMessage.status == 101 }
            try await viaMessage.send(json: #"{"type":"auth","token":"\#(token("message"))"}"#)
            _ = try await viaMessage.first("sync")
            try await viaMessage.send(json: #"{"type":"auth","token":"\#(token("message"))x"}"#)
            _ = try await viaMessage.first("error")
            let metrics = try await gateway.call(.get, "/metrics", token: nil)
            #expect(try await gateway.process.stop() == .code(0))

            let written = [
                "log": gateway.process.errors() + gateway.process.output(),
                "metrics": String(decoding: metrics.response.body, as: UTF8.self),
            ]
            #expect(written["log"]?.contains("gateway started") == true)
            #expect(written["log"]?.contains("/api/push/apns/{key}") == true)
            for (place, text) in written {
                #expect(!text.contains(canary), "the query is in the \(place)")
                #expect(!text.contains(pushToken), "a push token of a path is in the \(place)")
                for (name, token) in tokens {
                    // The signature alone is a secret too.
                    let secret = token.split(separator: ".").last.map { String($0) } ?? token
                    #expect(!text.contains(secret), "the token of \(name) is in the \(place)")
                }
            }
        }
    }
}
