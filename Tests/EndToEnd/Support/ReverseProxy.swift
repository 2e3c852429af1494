// Carillon · ReverseProxy.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Support

/// A reverse proxy in front of two gateways, with an example of `deploy/proxy` without its TLS.
struct ReverseProxy {
    enum Kind: String, CaseIterable, Sendable, CustomStringConvertible {
        case nginx, haproxy, caddy

        var description: String { self.rawValue }

        fileprivate var program: String? {
            ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map { "\($0)/\(self.rawValue)" }
                .first { FileManager.default.isExecutableFile(atPath: $0) }
        }

        /// The proxies that are installed; reports the others on standard error.
        static var installed: [Kind] {
            Self.allCases.filter { kind in
                if kind.program != nil { return true }
                FileHandle.standardError.write(Data("SKIPPED: \(kind) is not installed\n".utf8))
                return false
            }
        }

        /// Cookie values that the proxy routes to different gateways.
        var cookies: [String] {
            switch self {
            // nginx hashes the cookie.
            case .nginx: (0..<6).map { "client-\($0)" }
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
            text.replace("listen 443 ssl http2;", with: "listen 127.0.0.1:\(port);")
            text.replace("pid /run/nginx.pid;", with: "pid \(directory.path)/nginx.pid;")
            text.replace("error_log /var/log/nginx/error.log;", with: "error_log stderr;")
            text.replace(#/worker_(connections|rlimit_nofile) \d+;/#, with: { "worker_\($0.output.1) 1024;" })
        case .haproxy:
            text.replace("    bind :80\n", with: "")
            text.replace(#/bind :443 [^\n]+/#, with: "bind 127.0.0.1:\(port)")
            text.replace(#/\n *http-request redirect [^\n]+/#, with: "")
            text.replace("maxconn 200000", with: "maxconn 1000")
        case .caddy:
            text.replace("notify.example.com {", with: "http://:\(port) {\n\tbind 127.0.0.1")
            text = "{\n\tadmin off\n}\n" + text
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
