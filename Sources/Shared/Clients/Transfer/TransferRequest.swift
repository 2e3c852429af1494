// Carillon · TransferRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// A complete HTTP request.
package struct TransferRequest: Sendable, CustomStringConvertible {
    package enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
        case put = "PUT"
        case patch = "PATCH"
        case delete = "DELETE"
    }

    var method: Method
    /// An absolute URL, `https` unless the configuration allows `http`.
    var url: String
    /// Sent in this order, in addition to the user agent and what HTTP requires; HTTP/2 sends names
    /// in lower case.
    var headers: [(name: String, value: String)]
    var body: [UInt8]
    /// The caller's time limit; at most half of it passes in our queue.
    var timeout: Duration
    var priority: TransferPriority
    /// The limit of the response body; a longer one is cut and reported as incomplete.
    var maximumResponseBytes: Int
    /// Whether the request may still start, checked just before it is sent; nil means always.
    ///
    /// False ends it as `fenced`. Runs on the sending thread, so it must not block.
    var mayStart: (@Sendable () -> Bool)?
    /// The host's addresses as an entry of libcurl's `CURLOPT_RESOLVE`; nil lets libcurl look them
    /// up.
    var resolution: String?

    package init(
        _ method: Method,
        url: String,
        headers: [(name: String, value: String)] = [],
        body: [UInt8] = [],
        timeout: Duration = .seconds(30),
        priority: TransferPriority = .normal,
        maximumResponseBytes: Int = 65_536,
        mayStart: (@Sendable () -> Bool)? = nil
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
        self.priority = priority
        self.maximumResponseBytes = maximumResponseBytes
        self.mayStart = mayStart
    }

    /// Leaves out the path, the headers and the body, which hold tokens.
    package var description: String {
        "\(self.method.rawValue) \(self.origin ?? "nowhere"), \(self.body.count) bytes"
    }

    /// Scheme, host and port as written, such as `https://api.push.apple.com`; nil if the URL has
    /// none or holds a space or control character. (libcurl would stop reading at a NUL.)
    var origin: String? {
        let bytes = self.url.utf8
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes[colon...].starts(with: "://".utf8) else {
            return nil
        }
        guard bytes.allSatisfy({ $0 > 0x20 && $0 != 0x7F }) else { return nil }
        let start = bytes.index(colon, offsetBy: 3)
        let end =
            bytes[start...].firstIndex {
                $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#")
            } ?? bytes.endIndex
        return start == end ? nil : String(self.url[..<end])
    }
}

/// The order of requests in our queue, regardless of arrival.
package enum TransferPriority: Int, Sendable, CaseIterable {
    case high, normal, low
}
