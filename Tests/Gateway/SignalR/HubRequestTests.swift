// Carillon · HubRequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Protocols

@Suite("SignalR negotiation", .timeLimit(.minutes(10)))
struct NegotiationTests {
    private static func negotiate(
        _ query: String,
        method: String = "POST",
        allowsStatefulReconnect: Bool = true
    ) throws -> SignalRNegotiation {
        SignalRNegotiation(
            method: method,
            query: try RequestQuery(query, ignoresCase: true),
            connectionID: "public",
            connectionToken: "secret",
            allowsStatefulReconnect: allowsStatefulReconnect
        )
    }

    /// All transports, the preferred one first.
    private static let transports =
        #""availableTransports":[{"transport":"WebSockets","transferFormats":["Text"]},"#
        + #"{"transport":"ServerSentEvents","transferFormats":["Text"]},"#
        + #"{"transport":"LongPolling","transferFormats":["Text"]}]"#
    private static let one =
        #"{"negotiateVersion":1,"connectionId":"public","connectionToken":"secret","# + transports
    private static let zero = #"{"negotiateVersion":0,"connectionId":"public","# + transports

    @Test(
        "answers in the form of the requested version",
        arguments: [
            ("", zero + "}", 0, "public", false),
            ("negotiateVersion=0", zero + "}", 0, "public", false),
            ("negotiateVersion=1", one + "}", 1, "secret", false),
            ("NEGOTIATEVERSION=1", one + "}", 1, "secret", false),
            ("negotiateVersion=2", one + "}", 1, "secret", false),
            ("negotiateVersion=2147483647&x=y", one + "}", 1, "secret", false),
            (
                "negotiateVersion=1&useStatefulReconnect=true", one + #","useStatefulReconnect":true}"#, 1, "secret",
                true
            ),
            (
                "negotiateversion=1&usestatefulreconnect=True", one + #","useStatefulReconnect":true}"#, 1, "secret",
                true
            ),
            ("negotiateVersion=1&useStatefulReconnect=false", one + "}", 1, "secret", false),
            ("negotiateVersion=1&useStatefulReconnect=", one + "}", 1, "secret", false),
        ]
    )
    func versions(_ query: String, _ body: String, _ version: Int, _ id: String, _ isStateful: Bool) throws {
        let answer = try Self.negotiate(query)
        #expect(answer.response.status == 200)
        #expect(answer.response.contentType == "application/json")
        #expect(Wire.text(answer.response.body) == body)
        #expect(answer.offer?.version == version)
        #expect(answer.offer?.id == id)
        #expect(answer.offer?.usesStatefulReconnect == isStateful)
    }

    @Test(
        "answers a version that is not a natural number with an error in the body",
        arguments: [
            ("one", "The client requested a non-integer protocol version."),
            ("", "The client requested a non-integer protocol version."),
            ("1.0", "The client requested a non-integer protocol version."),
            ("99999999999999999999", "The client requested a non-integer protocol version."),
            ("-1", "The client requested version '-1', but the server does not support this version."),
        ]
    )
    func badVersions(_ version: String, _ error: String) throws {
        let answer = try Self.negotiate("negotiateVersion=\(version)")
        #expect(answer.response.status == 200)
        #expect(Wire.text(answer.response.body) == #"{"error":"\#(error)"}"#)
        #expect(answer.offer == nil)
    }

    @Test("negotiates only with POST", arguments: ["GET", "PUT", "DELETE", "post"])
    func methods(_ method: String) throws {
        let answer = try Self.negotiate("negotiateVersion=1", method: method)
        #expect(answer.response.status == 405)
        #expect(answer.offer == nil)
    }

    @Test("grants stateful reconnect only if it is allowed")
    func stateful() throws {
        let query = "negotiateVersion=1&useStatefulReconnect=true"
        let answer = try Self.negotiate(query, allowsStatefulReconnect: false)
        #expect(answer.offer?.usesStatefulReconnect == false)
        #expect(!Wire.text(answer.response.body).contains("useStatefulReconnect"))
    }

    @Test("keeps an unused offer for 15 seconds")
    func unused() throws {
        #expect(SignalRNegotiation.unusedLimit == 15_000)
    }
}

@Suite("SignalR requests", .timeLimit(.minutes(10)))
struct HubRequestTests {
    private typealias Standing = SignalRHubRequest.Standing

    private static func verdict(
        _ method: String,
        id: String? = "x",
        webSocket: Bool = false,
        accept: String? = nil,
        _ connection: SignalRHubRequest.Standing?
    ) -> SignalRHubRequest.Verdict {
        SignalRHubRequest(method: method, id: id, wantsWebSocket: webSocket, accept: accept).verdict(connection)
    }

    private static func status(_ verdict: SignalRHubRequest.Verdict) -> Int? {
        guard case .refuse(let response) = verdict else { return nil }
        return response.status
    }

    private static let fresh = SignalRHubRequest.Standing(transport: nil, isAttached: false, canReattach: false)

    private static func on(
        _ transport: SignalRTransport,
        attached: Bool = true,
        canReattach: Bool = false
    ) -> SignalRHubRequest.Standing {
        SignalRHubRequest.Standing(transport: transport, isAttached: attached, canReattach: canReattach)
    }

    @Test(
        "opens a new connection without id, else the negotiated one; replaces an attached one; 404 unknown, 400 other"
    )
    func webSockets() {
        #expect(Self.verdict("GET", id: nil, webSocket: true, nil) == .create)
        #expect(Self.verdict("GET", webSocket: true, Self.fresh) == .attach(.webSockets))
        #expect(Self.status(Self.verdict("GET", webSocket: true, nil)) == 404)
        #expect(Self.verdict("GET", webSocket: true, Self.on(.webSockets)) == .replace)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.on(.webSockets, attached: false))) == 404)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.on(.longPolling))) == 400)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.on(.serverSentEvents))) == 400)
    }

    @Test("reattaches to a new socket whether the old one has closed or not", arguments: [true, false])
    func reattach(_ isAttached: Bool) {
        let connection = Self.on(.webSockets, attached: isAttached, canReattach: true)
        #expect(Self.verdict("GET", webSocket: true, connection) == .reattach)
        #expect(Self.status(Self.verdict("GET", connection)) == 400)
    }

    @Test(
        "selects Server-Sent Events by the Accept header",
        arguments: [
            ("text/event-stream", true), ("TEXT/Event-Stream", true), ("text/html, text/event-stream;q=0.9", true),
            ("text/event-stream-x", false), ("*/*", false), ("", false),
        ]
    )
    func eventStream(_ accept: String, _ isChosen: Bool) {
        #expect(Self.verdict("GET", accept: accept, Self.fresh) == (isChosen ? .attach(.serverSentEvents) : .poll))
    }

    @Test("refuses Server-Sent Events for an attached connection")
    func eventStreamStatuses() {
        let accept = "text/event-stream"
        #expect(Self.status(Self.verdict("GET", id: nil, accept: accept, nil)) == 400)
        #expect(Self.status(Self.verdict("GET", accept: accept, nil)) == 404)
        #expect(Self.status(Self.verdict("GET", accept: accept, Self.on(.serverSentEvents))) == 409)
        #expect(Self.status(Self.verdict("GET", accept: accept, Self.on(.webSockets))) == 400)
    }

    @Test("treats a plain GET as a poll, even while another is parked")
    func polls() {
        #expect(Self.verdict("GET", Self.fresh) == .poll)
        #expect(Self.verdict("GET", Self.on(.longPolling)) == .poll)
        #expect(Self.status(Self.verdict("GET", id: nil, nil)) == 400)
        #expect(Self.status(Self.verdict("GET", nil)) == 404)
        #expect(Self.status(Self.verdict("GET", Self.on(.webSockets))) == 400)
    }

    @Test("accepts POST only for long polling and event streams")
    func posts() {
        #expect(Self.verdict("POST", Self.on(.longPolling)) == .send)
        #expect(Self.verdict("POST", Self.on(.serverSentEvents)) == .send)
        #expect(Self.status(Self.verdict("POST", Self.on(.webSockets))) == 405)
        #expect(Self.status(Self.verdict("POST", Self.fresh)) == 400)
        #expect(Self.status(Self.verdict("POST", id: nil, nil)) == 400)
        #expect(Self.status(Self.verdict("POST", nil)) == 404)
        #expect(SignalRResponse.sent.status == 200)
    }

    @Test("accepts DELETE only for long polling")
    func deletes() {
        #expect(Self.verdict("DELETE", Self.on(.longPolling)) == .delete)
        #expect(Self.status(Self.verdict("DELETE", Self.on(.webSockets))) == 400)
        #expect(Self.status(Self.verdict("DELETE", Self.on(.serverSentEvents))) == 400)
        #expect(Self.status(Self.verdict("DELETE", id: nil, nil)) == 400)
        #expect(Self.status(Self.verdict("DELETE", nil)) == 404)
        #expect(SignalRResponse.deleted.status == 202)
    }

    @Test("refuses other methods", arguments: ["PUT", "PATCH", "HEAD", "get"])
    func methods(_ method: String) {
        #expect(Self.status(Self.verdict(method, Self.on(.longPolling))) == 405)
    }

    @Test(
        "reads the connect request",
        arguments: [
            ("id=abc", nil, "abc", nil),
            ("ID=abc&access_token=t.o-k_n", nil, "abc", "t.o-k_n"),
            ("id=a%2Bb%2fc%3D&Access_Token=x%20y+z", nil, "a+b/c=", "x y z"),
            ("id=abc&access_token=query", "Bearer header", "abc", "header"),
            ("access_token=query", "bearer   header", nil, "header"),
            ("access_token=query", "Basic eDp5", nil, "query"),
            ("access_token=query", "Bearer ", nil, "query"),
            ("connectionId=c2lnbmFs", nil, nil, nil),
            ("id=&access_token=", nil, nil, nil),
            ("", nil, nil, nil),
        ] as [(String, String?, String?, String?)]
    )
    func connectRequests(_ query: String, _ authorization: String?, _ id: String?, _ token: String?) throws {
        let fields = try RequestQuery(query, ignoresCase: true)
        let request = SignalRConnectRequest(query: fields, authorization: authorization)
        #expect(request.id == id)
        #expect(request.accessToken == token)
    }

    @Test("reads the mark of a poll")
    func mark() throws {
        let marked = SignalRConnectRequest(query: try RequestQuery("id=a&_=17", ignoresCase: true), authorization: nil)
        #expect(marked.mark == PollMark("17"))
        #expect(marked.mark != PollMark("18"))
        let plain = SignalRConnectRequest(query: try RequestQuery("id=a&_=", ignoresCase: true), authorization: nil)
        #expect(plain.mark == nil)
    }
}
