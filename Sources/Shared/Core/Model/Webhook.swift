// Carillon · Webhook.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// An HTTP endpoint of an app that receives lifecycle events.
package struct Webhook: Sendable, Equatable {
    package enum Status: String, Sendable, CaseIterable {
        case active
        /// Its latest requests failed, or its queue overflowed.
        case failing
        /// It failed for days and receives no more events.
        case off
    }

    package let id: WebhookID
    /// The organisation whose events it receives; nil for all.
    package let org: String?
    package let url: String
    /// The kinds that it receives; nil for all.
    package var kinds: Set<LifecycleEvent.Kind>?
    /// The key of its signatures.
    package let secret: String
    package var status = Status.active
    package var statusReason: String?
    /// When the current run of failures began.
    package var failingSince: Timestamp?
    package let createdAt: Timestamp

    package init(
        id: WebhookID,
        org: String?,
        url: String,
        kinds: Set<LifecycleEvent.Kind>?,
        secret: String,
        createdAt: Timestamp
    ) {
        self.id = id
        self.org = org
        self.url = url
        self.kinds = kinds
        self.secret = secret
        self.createdAt = createdAt
    }

    /// Whether it receives events of this kind and organisation.
    package func wants(_ kind: String, org: String) -> Bool {
        if let own = self.org, !own.utf8.elementsEqual(org.utf8) { return false }
        guard let kinds else { return true }
        return LifecycleEvent.Kind(rawValue: kind).map { kinds.contains($0) } ?? false
    }

    /// Returns the rule that a URL breaks, phrased to follow the field's name; nil if it is valid.
    ///
    /// - Parameter allowsPlain: whether `http` is allowed.
    package static func fault(inURL url: String, allowsPlain: Bool) -> String? {
        let scheme = url.prefix { $0 != ":" }.lowercased()
        guard scheme == "https" || (allowsPlain && scheme == "http"), url.dropFirst(scheme.count).hasPrefix("://")
        else {
            return allowsPlain ? "must be an https or http URL" : "must be an https URL"
        }
        guard url.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "\\") }) else {
            return "must be ASCII without spaces; percent-encode the rest"
        }
        let rest = url.dropFirst(scheme.count + 3)
        let authority = rest.prefix { !"/?#".contains($0) }
        if authority.contains("@") { return "must not hold credentials" }
        if rest.contains("#") { return "must not have a fragment" }
        return authority.isEmpty || authority.hasPrefix(":") ? "must name a host" : nil
    }
}

/// Signs requests to webhooks, so that receivers can check their origin and time.
package enum WebhookSignature {
    /// The header that carries the signature.
    package static let header = "carillon-signature"

    /// Returns `t=<seconds>,v1=<hex>`: HMAC-SHA256 of the seconds, a full stop and the body.
    package static func make(secret: String, body: [UInt8], at moment: Timestamp) -> String {
        var code = HMAC<SHA256>(key: SymmetricKey(data: Array(secret.utf8)))
        code.update(data: Array("\(moment.seconds).".utf8))
        code.update(data: body)
        return "t=\(moment.seconds),v1=" + code.finalize().hex
    }
}
