// Carillon · TransferAnswerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Testing

@testable import Clients

@Suite("Transfer answers", .transfer, .timeLimit(.minutes(10)))
struct TransferAnswerTests {
    @Test("an answer has status, version, headers and body, with any status")
    func answer() async throws {
        try await TransferScope.withClient { client, sandbox in
            let request = TransferRequest(.get, url: sandbox.url + "/healthz", timeout: .seconds(600))
            let good = try #require(await client.perform(request).response)
            #expect(good.status == 200)
            #expect(good.version == .http2)
            #expect(good.isComplete)
            #expect(String(decoding: good.body, as: UTF8.self) == "ok\n")
            #expect(good.header("Content-Type") == "text/plain; charset=UTF-8")
            #expect(good.header("content-length") == "3")
            #expect(good.header("content") == nil)

            let missing = TransferRequest(.get, url: sandbox.url + "/none", timeout: .seconds(600))
            let bad = try #require(await client.perform(missing).response)
            #expect(bad.status == 404)
        }
    }

    @Test("method, headers and body arrive as given, without additions by libcurl")
    func request() async throws {
        try await TransferScope.withClient { client, sandbox in
            var push = sandbox.push()
            let device = String(push.url.suffix(64))
            push.headers.append((name: "Apns-Collapse-Id", value: "news"))
            push.body = Array(#"{"aps":{"alert":"\#(String(repeating: "ü", count: 1_500))"}}"#.utf8)
            let response = try #require(await client.perform(push).response)
            #expect(response.status == 200)
            #expect(response.header("apns-id")?.count == 36)

            let received = try #require(sandbox.received().first { $0.token == device })
            #expect(received.headers["apns-collapse-id"] == "news")
            #expect(received.headers["user-agent"] == "carillon")
            #expect(received.headers["content-type"] == nil)
            #expect(received.headers["expect"] == nil)
        }
    }

    @Test("leaves out a header with too many combining marks in a row")
    func marks() {
        func response(_ count: Int) -> TransferResponse {
            let lines = "HTTP/2 429\r\nretry-after: a" + String(repeating: "\u{300}", count: count) + "\r\n\r\n"
            return TransferResponse(
                status: 429, version: .http2, headerBlock: Array(lines.utf8), body: [], isComplete: true)
        }
        #expect(response(64).header("retry-after")?.unicodeScalars.count == 65)
        #expect(response(65).header("retry-after") == nil)
    }

    @Test("a handle that sent a long body then sends a short or empty one correctly")
    func reuse() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 1
        } _: { client, sandbox in
            for count in [200_000, 10, 0] {
                let body = [UInt8](repeating: UInt8(ascii: "a"), count: count)
                func send(_ method: TransferRequest.Method, _ path: String, _ body: [UInt8] = []) async -> Int? {
                    let request = TransferRequest(method, url: sandbox.url + path, body: body, timeout: .seconds(600))
                    return await client.perform(request).response?.status
                }
                #expect(await send(.post, "/token", body) != nil, "\(count) bytes")
                #expect(await send(.get, "/healthz") == 200)
                #expect(await send(.delete, "/received?none") == 204)
            }
        }
    }

    @Test("hundreds of concurrent requests share few connections and get their own answers")
    func many() async throws {
        try await TransferScope.withClient {
            $0.connectionsPerHost = 2
            $0.streamsPerConnection = 50
        } _: { client, sandbox in
            let answered = await withTaskGroup { group in
                for index in 0..<600 {
                    group.addTask {
                        let isThere = index.isMultiple(of: 2)
                        let url = sandbox.url + (isThere ? "/healthz" : "/none-\(index)")
                        let request = TransferRequest(.get, url: url, timeout: .seconds(600))
                        return await client.perform(request).response?.status == (isThere ? 200 : 404)
                    }
                }
                return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
            }
            #expect(answered == 600)
            #expect(client.snapshot() == TransferSnapshot())
        }
    }

    @Test("APNs' limit of one stream before the first token delays the others briefly")
    func strictServer() async throws {
        try await TransferScope.withClient { client, sandbox in
            let pushes = (0..<100).map { _ in sandbox.push() }
            let statuses = await withTaskGroup { group in
                for push in pushes { group.addTask { await client.perform(push).response?.status } }
                return await group.reduce(into: []) { $0.append($1) }
            }
            #expect(statuses.filter { $0 == 200 }.count == 100)
        }
    }

    @Test("a slow answer counts")
    func slow() async throws {
        try await TransferScope.withClient { client, sandbox in
            let response = try #require(await client.perform(sandbox.push("deade100")).response)
            #expect(response.status == 200)
        }
    }

    @Test("plain HTTP works only if allowed")
    func plain() async throws {
        let url = try #require(TransferScope.sandbox).controlURL + "/healthz"
        let request = TransferRequest(.get, url: url, timeout: .seconds(600))
        try await TransferScope.withClient { client, _ in
            let failure = await client.perform(request).failure
            #expect(failure?.reason == .invalidRequest)
            #expect(failure?.mayHaveBeenSent == false)
        }
        try await TransferScope.withClient {
            $0.allowPlainHTTP = true
        } _: { client, _ in
            let response = await client.perform(request).response
            #expect(response?.status == 200)
            #expect(response?.version == .http1)
        }
    }
}
