// Carillon · Webhook.swift
// SPDX-License-Identifier: Apache-2.0

/// Where an app is told by HTTP what became of its notifications.
package struct Webhook: Sendable, Equatable {
    package enum Status: String, Sendable, CaseIterable {
        case active
        /// Its latest requests failed, or it got more than it took.
        case failing
        /// It failed for days and gets nothing more.
        case off
    }

    package let id: NotificationID
    /// Whose events it gets; nil for those of every organisation.
    package let org: String?
    package let url: String
    /// The kinds that it gets; nil for all.
    package var kinds: Set<LifecycleEvent.Kind>?
    /// The key of its signatures.
    package let secret: String
    package var status = Status.active
    package var statusReason: String?
    /// Since when every request has failed.
    package var failingSince: Timestamp?
    package let createdAt: Timestamp

    package init(
        id: NotificationID,
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

    /// Whether it is told of events of that kind and organisation.
    package func wants(_ kind: String, org: String) -> Bool {
        if let own = self.org, !own.utf8.elementsEqual(org.utf8) { return false }
        guard let kinds else { return true }
        return LifecycleEvent.Kind(rawValue: kind).map { kinds.contains($0) } ?? false
    }

    /// What is wrong with a URL, in words that follow its name; nil if it can be used.
    ///
    /// - Parameter allowsPlain: whether `http` will do.
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
