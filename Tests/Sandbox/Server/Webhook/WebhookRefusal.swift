// Carillon · WebhookRefusal.swift
// SPDX-License-Identifier: Apache-2.0

/// An answer of a webhook's receiver that does not take the request.
struct WebhookRefusal: Error {
    let status: Int
    let message: String
    /// Whether the answer names a `Retry-After`.
    let isTemporary: Bool

    init(_ status: Int, _ message: String, isTemporary: Bool = false) {
        self.status = status
        self.message = message
        self.isTemporary = isTemporary
    }

    /// The answer, with the delay that the sandbox is configured with.
    func response(retryAfter: Int) -> SandboxResponse {
        var headers = self.isTemporary ? [("retry-after", String(retryAfter))] : []
        if (300..<400).contains(self.status) { headers.append(("location", "/elsewhere")) }
        return .json(self.status, JSONText.object([("error", self.message)]), headers: headers)
    }
}
