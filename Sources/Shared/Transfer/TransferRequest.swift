// Carillon · TransferRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// One HTTP request, whole.
package struct TransferRequest: Sendable {
    package enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
        case put = "PUT"
        case delete = "DELETE"
    }

    package var method: Method
    /// Absolute, with `https` as scheme.
    package var url: String
    /// Sent in this order, with nothing added but what HTTP needs; HTTP/2 carries the names in lower case.
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]
    /// How long the caller waits at most, the time in our own queue included.
    package var timeout: Duration
    /// The longest response body; a longer one ends in `responseTooLarge`.
    package var maximumResponseBytes: Int

    package init(
        _ method: Method,
        url: String,
        headers: [(name: String, value: String)] = [],
        body: [UInt8] = [],
        timeout: Duration = .seconds(30),
        maximumResponseBytes: Int = 65_536
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
        self.maximumResponseBytes = maximumResponseBytes
    }

    /// Scheme, host and port as written, such as `https://api.push.apple.com`; nil if the URL has no such beginning.
    var origin: String? {
        let bytes = self.url.utf8
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes[colon...].starts(with: "://".utf8) else {
            return nil
        }
        let start = bytes.index(colon, offsetBy: 3)
        let end =
            bytes[start...].firstIndex { [UInt8(ascii: "/"), UInt8(ascii: "?"), UInt8(ascii: "#")].contains($0) }
            ?? bytes.endIndex
        return start == end ? nil : String(self.url[..<end])
    }
}
