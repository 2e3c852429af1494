// Carillon · WebPushRefusal.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// An error answer of a push service, in the form of Mozilla's.
struct WebPushRefusal: Error {
    /// How Retry-After is said (RFC 9110 section 10.2.3).
    enum Delay {
        case seconds, date
    }

    let status: Int
    let number: Int
    let name: String
    let message: String
    var delay: Delay?
    var location: String?
    /// Apple's word, in place of Mozilla's form.
    var reason: String?

    init(_ status: Int, _ number: Int, _ name: String, _ message: String, delay: Delay? = nil, location: String? = nil)
    {
        self.status = status
        self.number = number
        self.name = name
        self.message = message
        self.delay = delay
        self.location = location
    }

    static func badRequest(_ message: String) -> WebPushRefusal { .init(400, 111, "Bad Request", message) }
    static func unauthorized(_ message: String) -> WebPushRefusal { .init(401, 109, "Unauthorized", message) }

    static let keyMismatch: WebPushRefusal = {
        var refusal = WebPushRefusal(400, 0, "Bad Request", "VapidPkHashMismatch")
        refusal.reason = "VapidPkHashMismatch"
        return refusal
    }()
    static let timeout = WebPushRefusal(408, 0, "Request Timeout", "The request took too long")
    static let notFound = WebPushRefusal(404, 102, "Not Found", "No such subscription")
    static let gone = WebPushRefusal(410, 106, "Gone", "Request did not validate: no such subscriber")
    static let forbidden = WebPushRefusal(403, 109, "Forbidden", "The key is not that of the subscription")
    static let tooLarge = WebPushRefusal(413, 104, "Payload Too Large", "The body has more than 4096 bytes")
    static let limited = WebPushRefusal(429, 0, "Too Many Requests", "Slow down", delay: .seconds)
    static let crowded = WebPushRefusal(429, 0, "Too Many Requests", "Slow down")
    static let conflict = WebPushRefusal(409, 0, "Conflict", "Something new")
    static let badGateway = WebPushRefusal(502, 0, "Bad Gateway", "Nobody there")
    static let limitedByDate = WebPushRefusal(429, 0, "Too Many Requests", "Slow down", delay: .date)
    static let internalError = WebPushRefusal(500, 999, "Internal Server Error", "An unknown error occurred")
    static let unavailable = WebPushRefusal(503, 201, "Service Unavailable", "Come back later", delay: .seconds)
    static let moved = WebPushRefusal(307, 0, "Temporary Redirect", "Elsewhere", location: "/elsewhere")

    /// The answer, with the delay that the sandbox is configured with.
    func response(retryAfter: Int, now: Date) -> SandboxResponse {
        var headers: [(String, String)] = []
        switch self.delay {
        case nil: break
        case .seconds: headers.append(("retry-after", String(retryAfter)))
        case .date: headers.append(("retry-after", Self.httpDate(now.addingTimeInterval(Double(retryAfter)))))
        }
        if let location { headers.append(("location", location)) }
        if let reason { return .json(self.status, JSONText.object([("reason", reason)]), headers: headers) }
        let body =
            #"{"code":\#(self.status),"errno":\#(self.number),"error":\#(JSONText.quoted(self.name)),"#
            + #""message":\#(JSONText.quoted(self.message))}"#
        return .json(self.status, body, headers: headers)
    }

    private static func httpDate(_ date: Date) -> String {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        return formatter.string(from: date)
    }
}
