// Carillon · ProtectionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Limits and refusals of the gateway's listener.
@Suite(.timeLimit(.minutes(10)))
struct ProtectionTests {
    @Test("oversized heads get 431 and oversized bodies 413; job batches may be larger")
    func sizes() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "u")
            let field = "x-fill: \(String(repeating: "x", count: 20_000))"
            let many = (0..<200).map { "x-\($0): 1" }.joined(separator: "\r\n")
            for fields in [field, many] {
                let client = try await TestSocket.connect(port: gateway.port)
                try await client.send(raw: Array("GET /healthz HTTP/1.1\r\nhost: x\r\n\(fields)\r\n\r\n".utf8))
                try await eventually("it is refused") { client.status == 431 }
                try await eventually("it is closed") { client.isClosed }
            }
            // On a connection that has already answered a request.
            let client = try await TestSocket.connect(port: gateway.port)
            try await client.send(raw: Array("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".utf8))
            try await eventually("it is answered") { client.status == 200 }
            try await client.send(raw: Array("GET /healthz HTTP/1.1\r\nhost: x\r\n\(field)\r\n\r\n".utf8))
            try await eventually("the second is refused") { client.head.contains(" 431 ") }

            let fill = String(repeating: "x", count: 1_100_000)
            let large = try await gateway.call(.put, "/v1/settings", token: token, json: #"{"zone":"\#(fill)"}"#)
            #expect(large.status == 413)
            let service = Stack.token(user: "app", scope: .service)
            let data = String(repeating: "d", count: 2_500)
            let job = #"{"type":"invoice_created","user":"u","title":"t","data":{"fill":"\#(data)"}}"#
            let jobs = "[" + Array(repeating: job, count: 1_000).joined(separator: ",") + "]"
            #expect(try await gateway.call(.post, "/v1/jobs", token: service, json: jobs).status == 202)
            let announced = try await TestSocket.connect(port: gateway.port)
            let head = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n"
            try await announced.send(raw: Array(head.utf8))
            try await eventually("it is refused before it is sent") { announced.status == 413 }
        }
    }

    @Test("sockets open for allowed origins, our own pages and clients without a page only")
    func origins() async throws {
        try await Stack.with { stack in
            let allowed = "https://app.example.com"
            let gateway = try await stack.startGateway(environment: ["ALLOWED_ORIGINS": "\(allowed), http://other.test"]
            )
            let token = Stack.token(user: "u")
            for (origin, status) in [
                (allowed, 101), ("https://APP.example.com", 101), ("http://127.0.0.1:\(gateway.port)", 101),
                ("https://evil.example", 403), ("null", 403), ("https://app.example.com.evil.example", 403),
                ("http://app.example.com", 403),
            ] {
                let socket = try await TestSocket.open(port: gateway.port, token: token, headers: ["Origin": origin])
                try await eventually("\(origin) is decided") { socket.status != nil }
                #expect(socket.status == status, "\(origin)")
                await socket.close()
            }
            let everyone = try await stack.startGateway(name: "any", environment: ["ALLOWED_ORIGINS": "*"])
            let socket = try await TestSocket.open(
                port: everyone.port, token: token, headers: ["Origin": "https://evil.example"])
            try await eventually("it is open") { socket.status == 101 }
            let answer = try await everyone.call(
                .get, "/v1/notifications", token: token, headers: [("origin", "https://evil.example")])
            #expect(answer.header("access-control-allow-origin") == "*")
            #expect(answer.header("access-control-allow-credentials") == nil)
            // SignalR's client sends credentials, and browsers then reject `*`.
            let page = "https://evil.example"
            for path in ["\(TestSignalR.path)/negotiate", TestSignalR.path, "/socket.io/?EIO=4&transport=polling"] {
                let preflight = try await Self.preflight(everyone, path, origin: page)
                #expect(preflight.contains(" 204 "), "\(path)")
                #expect(preflight.contains("access-control-allow-origin: \(page)\r\n"), "\(path)")
                #expect(preflight.contains("access-control-allow-credentials: true\r\n"), "\(path)")
                // Refusals must be readable too.
                for bearer in [token, nil] {
                    let called = try await everyone.call(.post, path, token: bearer, headers: [("origin", page)])
                    #expect(called.header("access-control-allow-origin") == page, "\(path)")
                    #expect(called.header("access-control-allow-credentials") == "true", "\(path)")
                }
            }
            let plain = try await Self.preflight(everyone, "/v1/notifications", origin: page)
            #expect(plain.contains("access-control-allow-origin: *\r\n"))
            #expect(!plain.contains("access-control-allow-credentials"))
        }
    }

    @Test("pages of allowed origins may read answers of routes and endpoints, others may not")
    func crossOrigin() async throws {
        try await Stack.with { stack in
            let allowed = "https://app.example.com"
            let gateway = try await stack.startGateway(environment: ["ALLOWED_ORIGINS": allowed])
            let token = Stack.token(user: "u")
            for path in ["/v1/notifications", "/v1/nothing", "/v1/stream"] {
                // The endpoint refuses the stream; the server answers the others.
                let bearer = path == "/v1/stream" ? nil : token
                for (origin, grant) in [(allowed, Optional(allowed)), ("https://evil.example", nil)] {
                    let answer = try await gateway.call(.get, path, token: bearer, headers: [("origin", origin)])
                    #expect(answer.header("access-control-allow-origin") == grant, "\(path) \(origin)")
                    #expect(answer.header("access-control-allow-credentials") == grant.map { _ in "true" })
                    #expect(answer.header("vary")?.contains("Origin") == true, "\(path)")
                }
            }
            for path in ["/v1/notifications", "/v1/stream", "/socket.io/", "\(TestSignalR.path)/negotiate"] {
                let allowedAnswer = try await Self.preflight(gateway, path, origin: allowed)
                #expect(allowedAnswer.contains(" 204 "), "\(path)")
                #expect(allowedAnswer.contains("access-control-allow-origin: \(allowed)\r\n"), "\(path)")
                #expect(allowedAnswer.contains("access-control-allow-headers: authorization,x-mine\r\n"), "\(path)")
                #expect(allowedAnswer.contains("DELETE"), "\(path)")
                let refused = try await Self.preflight(gateway, path, origin: "https://evil.example")
                #expect(refused.contains(" 403 ") && !refused.contains("access-control-allow"), "\(path)")
            }
        }
    }

    private static func preflight(_ gateway: Gateway, _ path: String, origin: String) async throws -> String {
        let client = try await TestSocket.connect(port: gateway.port)
        let lines = [
            "OPTIONS \(path) HTTP/1.1", "host: x", "origin: \(origin)", "access-control-request-method: DELETE",
            "access-control-request-headers: authorization,x-mine", "connection: close",
        ]
        try await client.send(raw: Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8))
        try await eventually("it is answered") { client.isClosed }
        return client.head
    }

    @Test("answers carry the security headers for browsers")
    func securityFields() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "u")
            for (path, cache) in [
                ("/v1/notifications", "private, no-cache"), ("/v1/settings", "no-store"), ("/v1/nothing", "no-store"),
                ("/healthz", "no-store"), ("/openapi.json", "public, max-age=300"),
                ("/openapi/compatibility.json", "public, max-age=300"),
            ] {
                let answer = try await gateway.call(.get, path, token: token)
                #expect(answer.header("x-content-type-options") == "nosniff", "\(path)")
                #expect(answer.header("x-frame-options") == "DENY", "\(path)")
                #expect(answer.header("cache-control") == cache, "\(path)")
                #expect(answer.header("strict-transport-security") == nil, "\(path)")
            }
        }
    }

    @Test("a user with too many sockets loses the oldest with 4409; other users keep theirs")
    func connections() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["USER_CONNECTIONS": "7"])
            let other = try await TestSocket.synced(port: gateway.port, user: "other")
            var sockets: [TestSocket] = []
            for _ in 0..<20 { sockets.append(try await TestSocket.synced(port: gateway.port, user: "many")) }
            for socket in sockets.prefix(13) { #expect(try await socket.waitForClose() == 4409) }
            #expect(sockets.suffix(7).allSatisfy { $0.closeCode == nil && !$0.isClosed })
            #expect(other.closeCode == nil)
            // Each once, although they do not answer the close and so stay for a while.
            let page = try await gateway.call(.get, "/metrics", token: nil).response.body
            let metrics = try MetricsText(String(decoding: page, as: UTF8.self))
            #expect(metrics.samples["carillon_sockets_crowded"] == 13)
        }
    }

    @Test("sockets per address are limited; behind a trusted proxy the client's address counts")
    func addresses() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(
                environment: ["ADDRESS_CONNECTIONS": "1", "TRUSTED_PROXIES": "127.0.0.0/8"])
            let token = Stack.token(user: "u")
            func open(_ address: String) async throws -> TestSocket {
                let socket = try await TestSocket.open(
                    port: gateway.port, token: token, headers: ["X-Forwarded-For": "1.1.1.1, \(address)"])
                try await eventually("it is decided") { socket.status != nil }
                return socket
            }
            let first = try await open("192.0.2.1")
            #expect(first.status == 101)
            #expect(try await open("192.0.2.1").status == 429)
            let second = try await open("192.0.2.2")
            #expect(second.status == 101)
            await first.close()
            try await eventually("there is room again") {
                let socket = try await open("192.0.2.1")
                return socket.status == 101
            }
        }
    }

    @Test("streams and polls of every dialect count once a connection for their address")
    func streams() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["ADDRESS_CONNECTIONS": "1"])
            func hub() async throws -> String {
                "\(TestSignalR.path)?id=\(try await TestSignalR.negotiate(gateway, user: "u"))"
            }
            let refused = try await hub()
            let first = try await TestStream.open(port: gateway.port, user: "u", path: try await hub())
            try await eventually("it is answered") { first.status == 200 }
            let token = Stack.token(user: "u")
            let poll = "/socket.io/?EIO=4&transport=polling"
            for path in [refused, poll, "/v1/stream"] {
                let answer = try await gateway.call(.get, path, token: token)
                #expect(answer.status == 429 && answer.header("retry-after") == "5", "\(path)")
            }
            // Requests that are not streams still pass.
            #expect(try await gateway.call(.get, "/v1/notifications", token: token).status == 200)
            await first.close()
            // The polls of one connection count once.
            try await eventually("there is room again") {
                try await gateway.call(.get, poll, token: nil).status == 200
            }
            for _ in 0..<3 { #expect(try await gateway.call(.get, poll, token: nil).status == 200) }
        }
    }

    @Test("a user who calls too often gets 429 with Retry-After; services and other users do not")
    func calls() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["USER_CALLS_PER_SECOND": "2"])
            let token = Stack.token(user: "busy")
            try await eventually("it is too much") {
                let answer = try await gateway.call(.get, "/v1/settings", token: token)
                guard answer.status == 429 else { return false }
                let seconds = answer.header("retry-after").flatMap { Int($0) }
                return (1...12).contains(seconds ?? 0)
            }
            let calm = try await gateway.call(.get, "/v1/settings", token: Stack.token(user: "calm"))
            #expect(calm.status == 200)
            try await eventually("it may call again") {
                try await gateway.call(.get, "/v1/settings", token: token).status == 200
            }
        }
    }

    @Test("each device that a call registers counts as a call")
    func rows() async throws {
        try await Stack.with { stack in
            // At most 6 calls at once.
            let gateway = try await stack.startGateway(environment: ["USER_CALLS_PER_SECOND": "1"])
            let token = Stack.token(user: "busy")
            let rows = (0..<100).map { #"{"platform":"android","token":"t\#($0)"}"# }.joined(separator: ",")
            let answer = try await gateway.call(.post, "/rest/v1/user_push_tokens", token: token, json: "[\(rows)]")
            #expect(answer.status == 201)
            var calls = 1
            try await eventually("the user has to wait") {
                calls += 1
                return try await gateway.call(.get, "/v1/settings", token: token).status == 429
            }
            #expect(calls < 6)
        }
    }

    @Test("each event that a call records counts as a call")
    func events() async throws {
        try await Stack.with { stack in
            // At most 6 calls at once.
            let gateway = try await stack.startGateway(environment: ["USER_CALLS_PER_SECOND": "1"])
            let token = Stack.token(user: "busy")
            let id = NotificationID.random()
            try await stack.query(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery,
                    lane, channels, title, body, status, created_at)
                VALUES ('busy', '\(id)', 0, 'x', '', 'invoice_created', 'info', 'push', 'normal', 2, 'push', '', 'sent',
                    now())
                """)
            let events = [String](repeating: #"{"notification_id":"\#(id)","event":"opened"}"#, count: 100)
            let answer = try await gateway.call(
                .post, "/rest/v1/notification_events", token: token, json: "[\(events.joined(separator: ","))]")
            #expect(answer.status == 201)
            var calls = 1
            try await eventually("the user has to wait") {
                calls += 1
                return try await gateway.call(.get, "/v1/settings", token: token).status == 429
            }
            #expect(calls < 6)
        }
    }

    @Test(
        "each ten preferences that a call sets count as a call",
        arguments: ["/v1/preferences", "/api/v1/notifications/preferences"])
    func preferences(path: String) async throws {
        try await Stack.with { stack in
            let types = (0..<1_000).map { "t\($0): {code: \($0 + 1)}" }.joined(separator: ", ")
            // At most 6 calls at once.
            let environment = try stack.catalog("types: {\(types)}").merging(["USER_CALLS_PER_SECOND": "1"]) { $1 }
            let gateway = try await stack.startGateway(environment: environment)
            let token = Stack.token(user: "busy")
            let isCanonical = path.hasPrefix("/v1")
            let entries = (0..<1_000).map { number in
                isCanonical
                    ? #"{"type":"t\#(number)","push":false}"#
                    : #"{"notificationType":\#(number + 1),"pushEnabled":false}"#
            }
            let body = #"{"\#(isCanonical ? "types" : "preferences")":[\#(entries.joined(separator: ","))]}"#
            #expect(try await gateway.call(.put, path, token: token, json: body).status == 200)
            #expect(try await stack.query("SELECT FROM carillon.preferences").count == 1_000)
            var calls = 1
            try await eventually("the user has to wait") {
                calls += 1
                return try await gateway.call(.get, "/v1/settings", token: token).status == 429
            }
            #expect(calls < 6)
        }
    }

    @Test("each 100 notifications of a large page count as a call")
    func largePages() async throws {
        try await Stack.with { stack in
            // At most 6 calls at once.
            let gateway = try await stack.startGateway(environment: ["USER_CALLS_PER_SECOND": "1"])
            let token = Stack.token(user: "busy")
            try await stack.query(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery,
                    lane, channels, title, body, status, created_at)
                SELECT 'busy', gen_random_uuid(), n, 'x', '', 'invoice_created', 'info', 'in_app', 'normal', 1, 'n', '',
                    'sent', now()
                FROM generate_series(1, 1000) n
                """)
            try await stack.query(
                "INSERT INTO carillon.inboxes (user_id, version, unread, total) VALUES ('busy', 1000, 1000, 1000)")
            var pages: [Int?] = []
            try await eventually("the user has to wait") {
                let answer = try await gateway.call(.get, "/api/notifications?limit=1000", token: token)
                if answer.status == 200 { pages.append(answer.body["notifications"]?.array?.count) }
                return answer.status == 429
            }
            // A page takes 10 calls. If it took one, the user would get at least 7 pages.
            #expect((1...6).contains(pages.count) && pages.allSatisfy { $0 == 1_000 })
        }
    }

    @Test("a user's messages are limited across sockets and gateways")
    func messages() async throws {
        try await Stack.with { stack in
            let environment = ["USER_MESSAGES_PER_SECOND": "2"]
            let gateways = [
                try await stack.startGateway(name: "one", environment: environment),
                try await stack.startGateway(name: "two", environment: environment),
            ]
            let calm = try await TestSocket.synced(port: gateways[0].port, user: "calm")
            var codes: [UInt16?] = []
            for number in 0..<6 where codes.isEmpty {
                // Each socket stays below its own limit.
                let socket = try await TestSocket.synced(port: gateways[number % 2].port, user: "busy")
                for _ in 0..<40 { try await socket.send(json: #"{"type":"ack","ids":[]}"#) }
                try await socket.send(json: #"{"type":"unread"}"#)
                try await eventually("it is answered or closed") { !socket.all("unread").isEmpty || socket.isClosed }
                if let code = socket.closeCode { codes.append(code) }
            }
            #expect(codes == [1008])
            #expect(calm.closeCode == nil)
        }
    }

    @Test("large bodies from users share 16 MB; small bodies and services always pass")
    func bodies() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            func large(_ path: String, _ user: String) async throws -> TestSocket {
                let token = Stack.token(user: user)
                let head = "POST \(path) HTTP/1.1\r\nhost: x\r\nauthorization: Bearer \(token)\r\n"
                let part = [UInt8](repeating: 0x20, count: 250_000)
                let client = try await TestSocket.connect(port: gateway.port)
                try await client.send(raw: Array("\(head)content-length: 260000\r\n\r\n".utf8) + part)
                return client
            }
            var clients: [TestSocket] = []
            for number in 0..<90 {
                let path = number.isMultiple(of: 2) ? "/v1/devices" : "/api/push/register"
                clients.append(try await large(path, "ada-\(number)"))
            }
            let all = clients
            // 16 MiB hold 68 of these, of which the first 4 KiB each are free.
            try await eventually("the others are refused") { all.filter { $0.status == 503 }.count >= 90 - 68 }
            // A body that takes too long gets 408.
            #expect(all.allSatisfy { [nil, 408, 503].contains($0.status) })
            try await gateway.register(user: "ben", platform: "android", token: "phone")
            let service = Stack.token(user: "app", scope: .service)
            let body = String(repeating: "b", count: 10_000)
            let job = #"{"user":"ben","type":"invoice_created","title":"t","data":{"text":"\#(body)"}}"#
            #expect(try await gateway.call(.post, "/v1/jobs", token: service, json: job).status == 202)
            for client in all { await client.close() }
            let ben = Stack.token(user: "ben")
            let types = String(repeating: " ", count: 500_000)
            try await eventually("there is room again") {
                // A refusal may close the connection before all of the body is sent.
                let answer = try? await gateway.call(
                    .put, "/v1/preferences", token: ben, json: #"{"types":[]\#(types)}"#)
                return answer?.status == 200
            }
        }
    }

    @Test("large bodies of one user leave room for those of others")
    func bodiesOfOneUser() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let head = "PUT /v1/preferences HTTP/1.1\r\nhost: x\r\nauthorization: Bearer \(token)\r\n"
            let part = [UInt8](repeating: 0x20, count: 1_030_000)
            // 16 MiB hold 16 of these, and then not 500,000 bytes more.
            var clients: [TestSocket] = []
            for _ in 0..<17 {
                let client = try await TestSocket.connect(port: gateway.port)
                clients.append(client)
                // A refusal may close the connection before all of the body is sent.
                try? await client.send(raw: Array("\(head)content-length: 1040000\r\n\r\n".utf8) + part)
            }
            let all = clients
            try await eventually("one is refused") { all.contains { $0.status == 503 } }
            let spaces = String(repeating: " ", count: 500_000)
            let answer = try await gateway.call(
                .put, "/v1/preferences", token: Stack.token(user: "ben"), json: #"{"types":[]\#(spaces)}"#)
            #expect(answer.status == 200)
            for client in all { await client.close() }
        }
    }

    @Test("a query with a repeated name or bad encoding is refused by name on every path")
    func queries() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let paths: [(path: String, name: String)] = [
                ("/v1/notifications", "limit"), ("/v1/stream", "ticket"),
                ("/v1/stream", "last_event_id"), ("/hubs/notifications", "access_token"), ("/hubs/notifications", "id"),
                ("/api/notifications", "limit"), ("/api/v1/notifications", "page"),
                ("/rest/v1/user_push_tokens", "select"),
            ]
            for (path, name) in paths {
                for (query, reason) in [
                    ("\(name)=1&\(name)=1", "occurs twice"),
                    ("\(name)=1&%\(String(name.utf8.first ?? 0, radix: 16))\(name.dropFirst())=2", "occurs twice"),
                    ("\(name)=%zz", "is not percent-encoded UTF-8"), ("\(name)=%FF", "is not percent-encoded UTF-8"),
                ] {
                    let answer = try await gateway.call(.get, "\(path)?\(query)", token: token)
                    let text = String(decoding: answer.response.body, as: UTF8.self)
                    // The accounting app expects 422 for every faulty call.
                    #expect(answer.status == (path == "/api/notifications" ? 422 : 400), "\(path)?\(query)")
                    #expect(text.contains(name) && text.contains(reason), "\(path)?\(query): \(text)")
                }
            }
            // SignalR ignores the case of names, and Engine.IO has its own error texts.
            let hub = "/hubs/notifications/negotiate?negotiateVersion=1"
            #expect(try await gateway.call(.post, "\(hub)&NEGOTIATEVERSION=1", token: token).status == 400)
            for query in ["sid=a&sid=b", "token=a&token=b", "token=%zz"] {
                let answer = try await gateway.call(.get, "/socket.io/?EIO=4&transport=polling&\(query)", token: nil)
                #expect(answer.status == 400, "\(query)")
                #expect(answer.body["message"]?.string == "Bad request", "\(query)")
            }
            for query in ["resume=1&resume=2", "resume=x", "resume=-1", "ticket=a&ticket=b", "ticket=%zz"] {
                let socket = try await TestSocket.open(port: gateway.port, token: token, query: "?\(query)")
                try await eventually("it is refused") { socket.status != nil }
                #expect(socket.status == 400, "\(query)")
            }
            for (path, name) in [
                ("/v1/schedules", "org"), ("/v1/schedules", "cursor"), ("/v1/webhooks", "org"), ("/v1/jobs/x", "org"),
            ] {
                let service = Stack.token(user: "app", scope: .service)
                let answer = try await gateway.call(.get, "\(path)?\(name)=", token: service)
                #expect(answer.status == 400, "\(path)?\(name)=")
                #expect(answer.faults == [name])
            }
            for query in ["select=", "select=id,", "select=garbage", "order=", "limit="] {
                let answer = try await gateway.call(.get, "/rest/v1/user_push_tokens?\(query)", token: token)
                #expect(answer.status == 400, "\(query)")
                #expect(answer.faults == [String(query.prefix { $0 != "=" })], "\(query)")
            }
        }
    }
}
