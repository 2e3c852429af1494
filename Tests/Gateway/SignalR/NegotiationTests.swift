// Carillon · NegotiationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("SignalR negotiation", .timeLimit(.minutes(10)))
struct NegotiationTests {
    private static func negotiate(
        _ query: String,
        method: String = "POST",
        transports: [SignalRTransport] = [.webSockets],
        allowsStatefulReconnect: Bool = true
    ) throws -> SignalRNegotiation {
        SignalRNegotiation(
            method: method,
            query: try RequestQuery(query, ignoresCase: true),
            transports: transports,
            connectionID: "public",
            connectionToken: "secret",
            allowsStatefulReconnect: allowsStatefulReconnect
        )
    }

    private static let one =
        #"{"negotiateVersion":1,"connectionId":"public","connectionToken":"secret","availableTransports":"#
        + #"[{"transport":"WebSockets","transferFormats":["Text"]}]"#
    private static let zero =
        #"{"negotiateVersion":0,"connectionId":"public","availableTransports":"#
        + #"[{"transport":"WebSockets","transferFormats":["Text"]}]"#

    @Test(
        "The answer's form is that of the version that the client asks for",
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
        "A version that is no number or negative gets an error as body",
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

    @Test("Only POST negotiates", arguments: ["GET", "PUT", "DELETE", "post"])
    func methods(_ method: String) throws {
        let answer = try Self.negotiate("negotiateVersion=1", method: method)
        #expect(answer.response.status == 405)
        #expect(answer.offer == nil)
    }

    @Test("Transports come in the order in which they are offered, all of them for text")
    func transports() throws {
        let answer = try Self.negotiate(
            "negotiateVersion=1", transports: [.webSockets, .serverSentEvents, .longPolling])
        let expected =
            #""availableTransports":[{"transport":"WebSockets","transferFormats":["Text"]},"#
            + #"{"transport":"ServerSentEvents","transferFormats":["Text"]},"#
            + #"{"transport":"LongPolling","transferFormats":["Text"]}]}"#
        #expect(Wire.text(answer.response.body).hasSuffix(expected))
    }

    @Test("Stateful reconnect is granted only if it is allowed and WebSockets are offered")
    func stateful() throws {
        let query = "negotiateVersion=1&useStatefulReconnect=true"
        let refused = try Self.negotiate(query, allowsStatefulReconnect: false)
        let polling = try Self.negotiate(query, transports: [.longPolling])
        for answer in [refused, polling] {
            #expect(answer.offer?.usesStatefulReconnect == false)
            #expect(!Wire.text(answer.response.body).contains("useStatefulReconnect"))
        }
    }

    @Test("An unused offer is kept for 15 seconds")
    func unused() throws {
        #expect(SignalRNegotiation.unusedLimit == 15_000)
    }
}
