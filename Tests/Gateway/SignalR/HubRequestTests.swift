// Carillon · HubRequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("SignalR requests", .timeLimit(.minutes(10)))
struct HubRequestTests {
    private typealias Standing = SignalRHubRequest.Standing

    private static func verdict(
        _ method: String,
        id: String? = "x",
        webSocket: Bool = false,
        accept: String? = nil,
        _ connection: SignalRHubRequest.Standing?,
        _ transports: [SignalRTransport] = SignalRTransport.allCases
    ) -> SignalRHubRequest.Verdict {
        SignalRHubRequest(method: method, id: id, wantsWebSocket: webSocket, accept: accept)
            .verdict(connection, transports: transports)
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
        "WebSockets: without id a new connection, with one the negotiated; 404 unknown, 409 attached, 400 other transport"
    )
    func webSockets() {
        #expect(Self.verdict("GET", id: nil, webSocket: true, nil) == .create)
        #expect(Self.verdict("GET", webSocket: true, Self.fresh) == .attach(.webSockets))
        #expect(Self.status(Self.verdict("GET", webSocket: true, nil)) == 404)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.on(.webSockets))) == 409)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.on(.webSockets, attached: false))) == 404)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.on(.longPolling))) == 400)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.on(.serverSentEvents))) == 400)
        #expect(Self.status(Self.verdict("GET", id: nil, webSocket: true, nil, [.longPolling])) == 404)
        #expect(Self.status(Self.verdict("GET", webSocket: true, Self.fresh, [.longPolling])) == 404)
    }

    @Test("Stateful reconnect moves to a new socket, whether the old one is gone or not", arguments: [true, false])
    func reattach(_ isAttached: Bool) {
        let connection = Self.on(.webSockets, attached: isAttached, canReattach: true)
        #expect(Self.verdict("GET", webSocket: true, connection) == .reattach)
        #expect(Self.status(Self.verdict("GET", connection)) == 400)
    }

    @Test(
        "Server-Sent Events are chosen by the Accept header",
        arguments: [
            ("text/event-stream", true), ("TEXT/Event-Stream", true), ("text/html, text/event-stream;q=0.9", true),
            ("text/event-stream-x", false), ("*/*", false), ("", false),
        ]
    )
    func eventStream(_ accept: String, _ isChosen: Bool) {
        #expect(Self.verdict("GET", accept: accept, Self.fresh) == (isChosen ? .attach(.serverSentEvents) : .poll))
    }

    @Test("Server-Sent Events need a connection that is not attached")
    func eventStreamStatuses() {
        let accept = "text/event-stream"
        #expect(Self.status(Self.verdict("GET", id: nil, accept: accept, nil)) == 400)
        #expect(Self.status(Self.verdict("GET", accept: accept, nil)) == 404)
        #expect(Self.status(Self.verdict("GET", accept: accept, Self.on(.serverSentEvents))) == 409)
        #expect(Self.status(Self.verdict("GET", accept: accept, Self.on(.webSockets))) == 400)
        #expect(Self.status(Self.verdict("GET", accept: accept, Self.fresh, [.webSockets])) == 404)
    }

    @Test("A plain GET is a poll, also while another one is parked")
    func polls() {
        #expect(Self.verdict("GET", Self.fresh) == .poll)
        #expect(Self.verdict("GET", Self.on(.longPolling)) == .poll)
        #expect(Self.status(Self.verdict("GET", id: nil, nil)) == 400)
        #expect(Self.status(Self.verdict("GET", nil)) == 404)
        #expect(Self.status(Self.verdict("GET", Self.on(.webSockets))) == 400)
        #expect(Self.status(Self.verdict("GET", Self.fresh, [.webSockets])) == 404)
    }

    @Test("POST sends on polls and event streams only")
    func posts() {
        #expect(Self.verdict("POST", Self.on(.longPolling)) == .send)
        #expect(Self.verdict("POST", Self.on(.serverSentEvents)) == .send)
        #expect(Self.status(Self.verdict("POST", Self.on(.webSockets))) == 405)
        #expect(Self.status(Self.verdict("POST", Self.fresh)) == 400)
        #expect(Self.status(Self.verdict("POST", id: nil, nil)) == 400)
        #expect(Self.status(Self.verdict("POST", nil)) == 404)
        #expect(SignalRResponse.sent.status == 200)
    }

    @Test("DELETE ends long polling only")
    func deletes() {
        #expect(Self.verdict("DELETE", Self.on(.longPolling)) == .delete)
        #expect(Self.status(Self.verdict("DELETE", Self.on(.webSockets))) == 400)
        #expect(Self.status(Self.verdict("DELETE", Self.on(.serverSentEvents))) == 400)
        #expect(Self.status(Self.verdict("DELETE", id: nil, nil)) == 400)
        #expect(Self.status(Self.verdict("DELETE", nil)) == 404)
        #expect(SignalRResponse.deleted.status == 202)
    }

    @Test("Other methods are refused", arguments: ["PUT", "PATCH", "HEAD", "get"])
    func methods(_ method: String) {
        #expect(Self.status(Self.verdict(method, Self.on(.longPolling))) == 405)
    }

    @Test(
        "A connection's request",
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

    @Test(
        "Secrets are left out of logs",
        arguments: [
            ("/hub", "/hub"),
            ("/hub?x=1", "/hub?x=1"),
            ("/hub?id=secret&access_token=jwt&x=1", "/hub?id=-&access_token=-&x=1"),
            ("/hub?ACCESS_TOKEN=jwt&", "/hub?ACCESS_TOKEN=-&"),
            ("/hub?access%5Ftoken=jwt", "/hub?access%5Ftoken=-"),
            ("/hub?access_token", "/hub?access_token"), ("/hub?access%token=jwt", "/hub?access%token=-"),
        ]
    )
    func scrubbing(_ target: String, _ scrubbed: String) {
        #expect(SignalRConnectRequest.scrubbed(target: target) == scrubbed)
    }
}
