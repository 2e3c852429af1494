// Carillon · TracingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import HTTP

/// A job's trace context reaches the provider, with and without a collector.
@Suite(.timeLimit(.minutes(10)))
struct TracingTests {
    private static let trace = "0af7651916cd43dd8448eb211c80319c"
    private static let parent = "00-\(trace)-b7ad6b7169203331-01"
    private static let unsampled = "00-\(trace)-b7ad6b7169203331-00"

    /// The `traceparent` of each push, by title.
    private static func headers(_ stack: Stack) -> [String: String] {
        var headers: [String: String] = [:]
        for message in stack.sandbox.received() { headers[Stack.title(message)] = message.headers["traceparent"] }
        return headers
    }

    /// All spans that the collector received.
    private static func spans(_ collector: HTTPStub) throws -> [JSONValue] {
        try collector.received.flatMap { request -> [JSONValue] in
            let scopes = try JSONParser.parse(request.body)["resourceSpans"]?.array?.first?["scopeSpans"]?.array
            return scopes?.first?["spans"]?.array ?? []
        }
    }

    @Test(
        "without a collector the trace context passes unchanged, through retries and restarts; a broken one is ignored"
    )
    func passedThrough() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await gateway.register(user: "eve", platform: "ios", token: String(repeating: "ab", count: 32))
            for (user, title) in [("ada", "by FCM"), ("eve", "by APNs")] {
                try await stack.append([
                    ("user", user), ("type", "payment_received"), ("title", title), ("traceparent", Self.parent),
                ])
            }
            try await stack.append([
                ("user", "ada"), ("type", "payment_received"), ("title", "broken"), ("traceparent", "00-1-2-3"),
            ])
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "none")])
            try await eventually("all are pushed") { stack.sandbox.received().count == 4 }
            let headers = Self.headers(stack)
            #expect(headers == ["by FCM": Self.parent, "by APNs": Self.parent])
            #expect(try await stack.deadReasons().isEmpty)

            // Jobs that wait across a restart keep it.
            #expect(try await dispatcher.stop() == .code(0))
            let token = Stack.token(user: "backend", scope: .service)
            let answer = try await gateway.call(
                .post, "/v1/jobs", token: token,
                json: #"{"user":"ada","type":"payment_received","title":"by REST"}"#,
                headers: [(name: "traceparent", value: Self.parent)])
            #expect(answer.status == 202)
            let own = "00-11111111111111111111111111111111-2222222222222222-00"
            _ = try await gateway.call(
                .post, "/v1/jobs", token: token,
                json: #"{"user":"ada","type":"payment_received","title":"its own","traceparent":"\#(own)"}"#,
                headers: [(name: "traceparent", value: Self.parent)])
            let ignored = try await gateway.call(
                .post, "/v1/jobs", token: token,
                json: #"{"user":"ada","type":"payment_received","title":"ignored"}"#,
                headers: [(name: "traceparent", value: "nonsense")])
            #expect(ignored.status == 202)
            _ = try await stack.startDispatcher(name: "second")
            try await eventually("they are pushed") { stack.sandbox.received().count == 7 }
            let later = Self.headers(stack)
            #expect(later["by REST"] == Self.parent)
            #expect(later["its own"] == own)
            #expect(later["ignored"] == nil)
            // Clients do not see it.
            let inbox = try await gateway.call(
                .get, "/v1/notifications", token: Stack.token(user: "ada"))
            #expect(!String(decoding: inbox.response.body, as: UTF8.self).contains(Self.trace))
        }
    }

    @Test("with a collector, request, job and delivery are nested spans of the sender's trace")
    func collected() async throws {
        try await HTTPStub.with(.init(body: "{}")) { collector in
            try await Stack.with { stack in
                let environment = [
                    "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/",
                    "OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret-of-the-collector",
                ]
                let gateway = try await stack.startGateway(environment: environment)
                let dispatcher = try await stack.startDispatcher(environment: environment)
                try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
                let token = Stack.token(user: "backend", scope: .service)
                for header in [Self.parent, Self.unsampled] {
                    let answer = try await gateway.call(
                        .post, "/v1/jobs", token: token,
                        json: #"{"user":"ada","type":"payment_received","title":"\#(header.suffix(2))"}"#,
                        headers: [(name: "traceparent", value: header)])
                    #expect(answer.status == 202)
                }
                try await eventually("all spans are there") { try Self.spans(collector).count == 3 }
                var spans: [String: JSONValue] = [:]
                for span in try Self.spans(collector) { spans[span["name"]?.string ?? ""] = span }
                #expect(Set(spans.keys) == ["POST /v1/jobs", "job", "delivery"])
                for span in spans.values {
                    #expect(span["traceId"]?.string == Self.trace)
                    #expect(span["status"] == nil)
                }
                #expect(spans["POST /v1/jobs"]?["parentSpanId"]?.string == "b7ad6b7169203331")
                #expect(spans["job"]?["parentSpanId"] == spans["POST /v1/jobs"]?["spanId"])
                #expect(spans["delivery"]?["parentSpanId"] == spans["job"]?["spanId"])
                let delivery = try #require(spans["delivery"]?["spanId"]?.string)
                #expect(Self.headers(stack)["01"] == "00-\(Self.trace)-\(delivery)-01")
                // The unsampled trace passes unchanged.
                #expect(Self.headers(stack)["00"] == Self.unsampled)
                let request = try #require(collector.received.first)
                #expect(request.head.first == "POST /v1/traces HTTP/1.1")
                #expect(request.header("x-key") == "secret-of-the-collector")
                #expect(try await dispatcher.stop() == .code(0))
                #expect(!(dispatcher.errors() + gateway.process.errors()).contains("secret-of-the-collector"))
            }
        }
    }

    @Test("an unreachable collector delays nothing, and lost spans are counted")
    func gone() async throws {
        try await Stack.with { stack in
            let environment = ["OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:\(try FreePort.next())"]
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher(environment: environment)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            for number in 0..<20 {
                try await stack.append([
                    ("user", "ada"), ("type", "payment_received"), ("title", "\(number)"),
                    ("traceparent", Self.parent),
                ])
            }
            try await eventually("all are pushed") { stack.pushed()["ada-phone"]?.count == 20 }
            try await eventually("they are counted") { dispatcher.errors().contains("spans are lost") }
            #expect(try await dispatcher.stop() == .code(0))
        }
    }
}
