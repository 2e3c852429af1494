// Carillon · ProviderRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// An HTTP request to a provider, ready to be sent.
package struct ProviderRequest: Sendable, Equatable {
    package var url: String
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]

    package init(url: String, headers: [(name: String, value: String)], body: [UInt8]) {
        self.url = url
        self.headers = headers
        self.body = body
    }

    package static func == (left: ProviderRequest, right: ProviderRequest) -> Bool {
        left.url == right.url && left.body == right.body
            && left.headers.map { "\($0.name): \($0.value)" } == right.headers.map { "\($0.name): \($0.value)" }
    }
}
