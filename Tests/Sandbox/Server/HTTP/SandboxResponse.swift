// Carillon · SandboxResponse.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// One whole response.
struct SandboxResponse {
    let status: Int
    var headers: [(String, String)]
    let body: ByteBuffer

    init(status: Int, headers: [(String, String)] = [], body: ByteBuffer = ByteBuffer()) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// A JSON body as Google labels it.
    static func json(_ status: Int, _ text: String, headers: [(String, String)] = []) -> SandboxResponse {
        let type = ("content-type", "application/json; charset=UTF-8")
        return SandboxResponse(status: status, headers: [type] + headers, body: ByteBuffer(string: text))
    }

    /// An answer whose body makes no sense as far as it goes; where its status asks for patience it says how much.
    init(_ status: Int, unfinished text: String) {
        let delay = status == 429 || status == 503 ? [("retry-after", "5")] : []
        self = .json(status, text, headers: delay)
    }

    /// A line of text.
    static func plain(_ status: Int, _ text: String) -> SandboxResponse {
        let type = ("content-type", "text/plain; charset=UTF-8")
        return SandboxResponse(status: status, headers: [type], body: ByteBuffer(string: text + "\n"))
    }

    /// What no provider should answer, and some proxy will.
    init(_ nonsense: Fault.Nonsense, to request: SandboxRequest) {
        let (status, text) =
            switch nonsense {
            case .html: (502, "<html><body><h1>502 Bad Gateway</h1></body></html>")
            case .half: (503, #"{"error":{"code":503,"status":"UNAVAIL"#)
            case .empty: (500, "")
            case .huge: (200, String(repeating: "x", count: 1_000_000))
            case .echo: (502, request.headers.map { "\($0.name): \($0.value)\n" }.joined())
            case .lost: (404, "<html><body><h1>404 Not Found</h1></body></html>")
            case .page: (200, "<html><body><h1>Please log in</h1></body></html>")
            case .blank: (200, "")
            case .torn: (200, #"{"name":"projects/p/mess"#)
            }
        let type = text.hasPrefix("<html>") ? [("content-type", "text/html; charset=UTF-8")] : []
        self.init(status: status, headers: type, body: ByteBuffer(string: text))
    }
}
