// Carillon · ReverseProxyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// The examples of `deploy/proxy` with every kind of client and two gateways.
@Suite(.timeLimit(.minutes(10)))
struct ReverseProxyTests {
    /// A polling client, with a routing cookie if given.
    private struct Poller {
        let port: Int
        let http: TransferClient
        let headers: [(name: String, value: String)]

        init(_ port: Int, _ http: TransferClient, cookie: String?) {
            self.port = port
            self.http = http
            self.headers = cookie.map { [(name: "cookie", value: "carillon_node=\($0)")] } ?? []
        }

        private func send(_ method: TransferRequest.Method, _ query: String, body: String = "") async throws
            -> TestEngine.Answer
        {
            let answer = try await TestEngine.send(
                method, "?EIO=4&transport=polling" + query, body: body, headers: self.headers, port: self.port,
                http: self.http)
            guard answer.status == 200 else {
                throw FixtureError("\(method) \(query): \(answer.status) \(answer.body)")
            }
            return answer
        }

        /// Opens a session for a user and returns its id.
        func open(user: String) async throws -> String {
            let handshake = try JSONParser.parse(Array(try await self.send(.get, "").body.utf8.dropFirst()))
            let sid = try #require(handshake["sid"]?.string)
            let token = Stack.token(user: user)
            _ = try await self.send(.post, "&sid=\(sid)", body: #"40{"token":"\#(token)"}"#)
            return sid
        }

        /// Polls until a packet contains a text.
        func poll(_ sid: String, until text: String) async throws {
            while true {
                let packets = try await self.send(.get, "&sid=\(sid)").packets
                if packets.contains(where: { $0.contains(text) }) { return }
                if packets.contains("2") { _ = try await self.send(.post, "&sid=\(sid)", body: "3") }
            }
        }
    }

    @Test("sockets, streams, polling and calls work through the proxy", arguments: ReverseProxy.Kind.installed)
    func clients(kind: ReverseProxy.Kind) async throws {
        try await Stack.with { stack in
            let trust = ["TRUSTED_PROXIES": "127.0.0.1"]
            let gateways = [
                try await stack.startGateway(name: "one", environment: trust),
                try await stack.startGateway(name: "two", environment: trust),
            ]
            _ = try await stack.startDispatcher()
            let directory = try TemporaryDirectory("proxy")
            let proxy = try await ReverseProxy.start(kind, before: gateways, in: directory)
            let through = Gateway(process: proxy.process, port: proxy.port, http: stack.http)

            let socket = try await TestSocket.synced(port: proxy.port, user: "native")
            let stream = try await TestStream.open(port: proxy.port, user: "stream")
            _ = try await stream.first("sync")
            // One without a cookie, and others routed by theirs.
            var pollers: [(poller: Poller, sid: String)] = []
            for cookie in [nil] + kind.cookies.map({ $0 as String? }) {
                let poller = Poller(proxy.port, stack.http, cookie: cookie)
                let sid = try await poller.open(user: "poller")
                try await poller.poll(sid, until: #""sync""#)
                pollers.append((poller, sid))
            }
            for user in ["native", "stream", "poller"] {
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "Through it")])
            }
            let frame = try await socket.first("notification")
            #expect(frame["notification"]?["title"]?.string == "Through it")
            // The proxy must not buffer the stream.
            try await eventually("the stream tells") { stream.titles == ["Through it"] }
            for (poller, sid) in pollers { try await poller.poll(sid, until: "Through it") }

            // Cookies must have routed clients to both gateways.
            for gateway in gateways where !kind.cookies.isEmpty {
                let page = try await gateway.call(.get, "/metrics", token: nil).response.body
                let metrics = try MetricsText(String(decoding: page, as: UTF8.self))
                #expect((metrics.samples["carillon_sockets_accepted"] ?? 0) > 0)
            }

            // Only their paths matter.
            for path in [
                "/v1/users/a-person/revoke-tokens", "/v1/admin/presence/a-person", "/v1/topics/goals/members/a-person",
                "/api/push/apns/a-device/", "/api/push/gcm/a-device/?x=1",
            ] {
                _ = try await through.call(.delete, path, token: nil)
            }

            // Calls between upgrades, on connections that the proxy reuses.
            for number in 0..<20 {
                let token = Stack.token(user: "native")
                let headers = [
                    (name: "x-request-id", value: "call-\(number)"), (name: "referer", value: "/?token=in-a-header"),
                ]
                let answer = try await through.call(.get, "/v1/notifications", token: token, headers: headers)
                #expect(answer.status == 200)
                #expect(answer.header("x-request-id") == "call-\(number)")
                if number.isMultiple(of: 5) { _ = try await TestSocket.synced(port: proxy.port, user: "native") }
            }
            func log() -> String { proxy.process.output() + proxy.process.errors() }
            try await eventually("calls are in the log, with their ids") {
                log().contains("/v1/notifications") && log().contains("call-19")
            }
            // A query or a header may hold a token, so the log must have neither.
            #expect(!log().contains("transport=polling"))
            #expect(!log().contains("in-a-header"))
            // Nor the ids of users and the push tokens that paths hold.
            #expect(log().contains("/revoke-tokens"))
            #expect(!log().contains("a-person") && !log().contains("a-device"))
            for name in ["metrics", "readyz", "healthz"] {
                for path in ["/\(name)", "/\(name)/", "/\(name)?x=1", "/\(name)/x"] {
                    let answer = try await through.call(.get, path, token: nil)
                    #expect(answer.status == 404, "\(path)")
                    #expect(answer.type?.hasPrefix("application/problem+json") != true, "\(path) is the proxy's answer")
                }
                // In any spelling; the gateway refuses what the proxy lets through.
                for path in ["//\(name)", "///\(name)//"] {
                    #expect(try await through.call(.get, path, token: nil).status == 404, "\(path)")
                }
                for path in [
                    "/./\(name)", "/v1/../\(name)", "/%\(String(name.utf8.first ?? 0, radix: 16))\(name.dropFirst())",
                ] {
                    let client = try await TestSocket.connect(port: proxy.port)
                    let request = "GET \(path) HTTP/1.1\r\nhost: x\r\n\r\n"
                    try await client.send(raw: Array(request.utf8))
                    try await eventually("it is answered") { client.status != nil }
                    #expect(client.status == 404, "\(path)")
                }
            }
        }
    }

    @Test("the examples listen on IPv4 and IPv6")
    func families() throws {
        let nginx = try Stack.text("deploy/proxy/nginx.conf")
        let haproxy = try Stack.text("deploy/proxy/haproxy.cfg")
        for line in ["listen 80;", "listen [::]:80;", "listen 443 ssl ", "listen [::]:443 ssl "] {
            #expect(nginx.contains("        \(line)"), "\(line)")
        }
        for line in ["bind :80,:::80 v6only", "bind :443,:::443 v6only ssl "] {
            #expect(haproxy.contains("    \(line)"), "\(line)")
        }
    }

    @Test("sockets keep the client's host and address through the proxy", arguments: ReverseProxy.Kind.installed)
    func addresses(kind: ReverseProxy.Kind) async throws {
        try await Stack.with { stack in
            let settings = ["TRUSTED_PROXIES": "127.0.0.1", "ADDRESS_CONNECTIONS": "1"]
            let gateways = [
                try await stack.startGateway(name: "one", environment: settings),
                try await stack.startGateway(name: "two", environment: settings),
            ]
            let directory = try TemporaryDirectory("proxy")
            let proxy = try await ReverseProxy.start(kind, before: gateways, in: directory)
            let token = Stack.token(user: "ada")
            func open(_ address: String) async throws -> TestSocket {
                // The gateway recognises its own pages by the host.
                let headers = ["Origin": "http://127.0.0.1:\(proxy.port)", "X-Forwarded-For": address]
                let socket = try await TestSocket.open(port: proxy.port, token: token, headers: headers)
                try await eventually("it is decided") { socket.status != nil }
                return socket
            }
            let first = try await open("192.0.2.1")
            #expect(first.status == 101)
            #expect(try await open("192.0.2.1").status == 429)
            // Caddy replaces the addresses that a client gives.
            #expect(try await open("192.0.2.2").status == (kind == .caddy ? 429 : 101))
            await first.close()
        }
    }

    @Test(
        "no call fails and sockets open when one of two gateways is down; no query is logged when both are",
        arguments: ReverseProxy.Kind.installed)
    func loss(kind: ReverseProxy.Kind) async throws {
        try await Stack.with { stack in
            let gateways = [
                try await stack.startGateway(name: "one"), try await stack.startGateway(name: "two"),
            ]
            let directory = try TemporaryDirectory("proxy")
            let proxy = try await ReverseProxy.start(kind, before: gateways, in: directory)
            let through = Gateway(process: proxy.process, port: proxy.port, http: stack.http)
            let token = Stack.token(user: "ada")
            #expect(try await gateways[0].process.stop() == .code(0))
            // At once: a health check may not have noticed yet.
            for _ in 0..<10 {
                #expect(try await through.call(.get, "/v1/notifications", token: token).status == 200)
            }
            try await eventually("a socket opens") {
                let socket = try await TestSocket.open(port: proxy.port, token: token)
                try await eventually("it is decided") { socket.status != nil }
                return socket.status == 101
            }
            #expect(try await gateways[1].process.stop() == .code(0))
            try await eventually("the proxy reaches no gateway") {
                try await through.call(.get, "/v1/notifications?token=in-the-query", token: nil).status >= 502
            }
            func log() -> String { proxy.process.output() + proxy.process.errors() }
            try await eventually("the fault is logged") { log().contains("/v1/notifications") }
            #expect(!log().contains("in-the-query"))
        }
    }
}

/// A reverse proxy in front of two gateways, with an example of `deploy/proxy` without its TLS.
struct ReverseProxy {
    enum Kind: String, CaseIterable, Sendable, CustomStringConvertible {
        case nginx, haproxy, caddy

        var description: String { self.rawValue }

        fileprivate var program: String? {
            ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map { "\($0)/\(self.rawValue)" }
                .first { FileManager.default.isExecutableFile(atPath: $0) }
        }

        /// The proxies that are installed; reports the others.
        static var installed: [Kind] {
            Self.allCases.filter { kind in
                if kind.program != nil { return true }
                Skips.note("\(kind) is not installed")
                return false
            }
        }

        /// Cookie values that the proxy routes to different gateways.
        var cookies: [String] {
            switch self {
            // nginx hashes the cookie.
            case .nginx: (0..<12).map { "client-\($0)" }
            case .haproxy: ["one", "two"]
            // Caddy hashes the address only.
            case .caddy: []
            }
        }
    }

    let process: ChildProcess
    let port: Int

    static func start(_ kind: Kind, before gateways: [Gateway], in directory: TemporaryDirectory) async throws
        -> ReverseProxy
    {
        guard let program = kind.program, gateways.count == 2 else { throw FixtureError("no \(kind)") }
        let port = try FreePort.next()
        let file =
            switch kind {
            case .nginx: "nginx.conf"
            case .haproxy: "haproxy.cfg"
            case .caddy: "Caddyfile"
            }
        var text = try Stack.text("deploy/proxy/\(file)")
        for (number, gateway) in zip([8080, 8081], gateways) {
            text = text.replacing("127.0.0.1:\(number)", with: "127.0.0.1:\(gateway.port)")
        }
        switch kind {
        case .nginx:
            text.replace(#/    server \{\n        listen 80;[^}]+\}\n/#, with: "")
            text.replace(#/\n *ssl_[^\n]+/#, with: "")
            text.replace("        listen [::]:443 ssl http2;\n", with: "")
            text.replace("listen 443 ssl http2;", with: "listen 127.0.0.1:\(port);")
            text.replace("pid /run/nginx.pid;", with: "pid \(directory.path)/nginx.pid;")
            text.replace("/var/log/nginx/error.log", with: "stderr")
            text.replace("/var/log/nginx/access.log", with: "/dev/stderr")
            text.replace(#/worker_(connections|rlimit_nofile) \d+;/#, with: { "worker_\($0.output.1) 1024;" })
        case .haproxy:
            text.replace(#/    bind :80,[^\n]+\n/#, with: "")
            text.replace(#/bind :443,[^\n]+/#, with: "bind 127.0.0.1:\(port)")
            text.replace(#/\n *http-request redirect [^\n]+/#, with: "")
            text.replace("maxconn 200000", with: "maxconn 1000")
        case .caddy:
            text.replace("notify.example.com {", with: "http://:\(port) {\n\tbind 127.0.0.1")
            text.replace("\tlog {\n", with: "\tadmin off\n\tlog {\n")
        }
        let path = directory.file(file)
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        let arguments =
            switch kind {
            case .nginx: ["-c", path, "-g", "daemon off; master_process off;"]
            case .haproxy: ["-db", "-f", path]
            case .caddy: ["run", "--adapter", "caddyfile", "--config", path]
            }
        let process = try await ChildProcess.spawn(
            program, arguments, name: kind.rawValue, environment: ["HOME": directory.path], directory: directory.path)
        let proxy = ReverseProxy(process: process, port: port)
        try await eventually("\(kind) answers") {
            if let exit = process.exit { throw FixtureError("\(kind) ended with \(exit): \(process.tail())") }
            let answer = await gateways[0].http.perform(.init(.get, url: "http://127.0.0.1:\(port)/v1/notifications"))
            guard case .answered(let response) = answer else { return false }
            // 401 comes from a gateway; a proxy that reaches none answers 502 or 503.
            return response.status == 401
        }
        return proxy
    }
}
