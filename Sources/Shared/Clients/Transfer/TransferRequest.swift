// Carillon · TransferRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// One HTTP request, whole.
package struct TransferRequest: Sendable, CustomStringConvertible {
    package enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
        case put = "PUT"
        case patch = "PATCH"
        case delete = "DELETE"
    }

    package var method: Method
    /// Absolute, with `https` as scheme.
    package var url: String
    /// Sent in this order, besides what HTTP needs and the user agent; HTTP/2 carries the names in lower case.
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]
    /// How long the caller waits at most, the time in our own queue included.
    package var timeout: Duration
    /// Which go before it that wait for the same, and before which it goes.
    package var priority: TransferPriority
    /// The longest response body; of a longer one the beginning is given, and it is not complete.
    package var maximumResponseBytes: Int

    package init(
        _ method: Method,
        url: String,
        headers: [(name: String, value: String)] = [],
        body: [UInt8] = [],
        timeout: Duration = .seconds(30),
        priority: TransferPriority = .normal,
        maximumResponseBytes: Int = 65_536
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
        self.priority = priority
        self.maximumResponseBytes = maximumResponseBytes
    }

    /// Without the path, the headers and the body, which hold tokens.
    package var description: String {
        "\(self.method.rawValue) \(self.origin ?? "nowhere"), \(self.body.count) bytes"
    }

    /// Scheme, host and port as written, such as `https://api.push.apple.com`; nil if the URL has no such beginning, or
    /// holds what none may: libcurl would read it up to the first NUL.
    var origin: String? {
        let bytes = self.url.utf8
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes[colon...].starts(with: "://".utf8) else {
            return nil
        }
        guard bytes.allSatisfy({ $0 > 0x20 && $0 != 0x7F }) else { return nil }
        let start = bytes.index(colon, offsetBy: 3)
        let end = bytes[start...].firstIndex { "/?#".utf8.contains($0) } ?? bytes.endIndex
        return start == end ? nil : String(self.url[..<end])
    }
}
