// Carillon · Keyspace.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The names of all Redis keys.
///
/// One command or script touches one `{tag}`.
package struct Keyspace: Sendable {
    /// The consumer group of every stream.
    package static let group = "dispatchers"
    /// What stands for a stream where a job came due instead of being taken from one.
    package static let schedules = "schedules"
    /// Over how many sorted sets the unconfirmed are spread.
    package static let unconfirmedShards = 16

    private let prefix: String

    package init(prefix: String = "carillon:") {
        self.prefix = prefix
    }

    /// A name from outside as it stands in a hash tag; no two names have the same form.
    ///
    /// Redis sees no tag in `{}`: with a name that is empty or begins with the tag's end, the keys
    /// of one script would lie in several slots.
    private static func tag(_ name: String) -> String {
        switch name.utf8.first {
        case nil, UInt8(ascii: "}"), UInt8(ascii: "%"): "%" + name
        default: name
        }
    }

    package func jobs(_ lane: Lane) -> String {
        switch lane {
        case .normal: self.prefix + "jobs"
        case .critical, .bulk: self.prefix + "jobs:" + lane.rawValue
        }
    }

    /// The lane of a jobs stream; nil for any other key.
    package func lane(ofJobs stream: String) -> Lane? {
        Lane.allCases.first { self.jobs($0) == stream }
    }

    /// The jobs of an organisation that were moved out of the others' way.
    package func overflow(_ org: String) -> String { "\(self.prefix)jobs:{overflow}:\(org)" }

    /// The organisations that have an overflow.
    var overflows: String { self.prefix + "jobs:{overflow}" }

    package func deliveries(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.prefix){\(provider.rawValue)}:deliveries:\(lane.rawValue)"
    }

    package func retries(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.prefix){\(provider.rawValue)}:retry:\(lane.rawValue)"
    }

    /// The apps of which something was held back untried.
    package func held(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.prefix){\(provider.rawValue)}:held:\(lane.rawValue)"
    }

    /// What was held back of an app.
    package func held(_ provider: Provider, _ lane: Lane, app: String) -> String {
        self.held(provider, lane) + ":" + app
    }

    /// Until when which of a provider's accounts are left alone.
    package func pauses(_ provider: Provider) -> String { "\(self.prefix){\(provider.rawValue)}:pauses" }

    /// Which entry a delivery is being sent for.
    func sendClaim(_ work: DeliveryWork, _ provider: Provider) -> String {
        let purpose = work.isRetraction ? ":x" : ""
        return "\(self.prefix){\(provider.rawValue)}:sending:\(work.notification):\(work.device)\(purpose)"
    }

    /// Whose turn it is to sweep.
    package var sweepTurn: String { self.prefix + "sweep" }

    /// Whose turn it is to take away what has been kept long enough.
    package var retentionTurn: String { self.prefix + "retention" }

    /// Whether work goes back that was set aside: from a stream of jobs or of any provider's deliveries to that stream, and a
    /// job that came due to its lane's.
    package func takesBack(_ stream: String) -> Bool {
        if stream == Self.schedules || self.lane(ofJobs: stream) != nil { return true }
        // By its form: who has the letter of a provider need not have heard of it.
        let word = stream.dropFirst(self.prefix.count + 1).prefix { $0 != "}" }
        guard let provider = Provider(rawValue: String(word)) else { return false }
        return Lane.allCases.contains { self.deliveries(provider, $0) == stream }
    }

    /// Is there as long as Redis remembers what it was given.
    package var memory: String { self.prefix + "memory" }

    package var dead: String { self.prefix + "dead" }

    /// The stream of what became of notifications.
    package var events: String { self.prefix + "events" }

    /// Webhooks by when they are to be told something.
    var webhooksDue: String { self.prefix + "{webhooks}:due" }

    /// What a webhook has yet to be told.
    func webhookQueue(_ webhook: NotificationID) -> String { "\(self.prefix){webhooks}:queue:\(webhook)" }

    package func presence(_ user: String) -> String { "\(self.prefix)presence:{\(Self.tag(user))}" }

    /// How far the user's connections have seen the inbox.
    func bookmarks(_ user: String) -> String { "\(self.prefix)bookmarks:{\(Self.tag(user))}" }

    /// What dispatchers say about their providers.
    var providers: String { "\(self.prefix)providers" }

    /// Requests for sends that somebody waits for.
    var testSends: String { "\(self.prefix)test-sends" }

    func testAnswer(_ id: String) -> String { "\(self.prefix)test-answer:\(id)" }

    /// Set when a dispatcher takes such a request.
    func testTaken(_ id: String) -> String { "\(self.prefix)test-taken:\(id)" }

    /// What a user has used up of a rate.
    func bucket(_ kind: String, _ user: String) -> String { "\(self.prefix)rate:\(kind):{\(Self.tag(user))}" }

    /// What a user got of something that is capped.
    func usage(_ kind: String, _ user: String) -> String { "\(self.prefix)used:{\(Self.tag(user))}:\(kind)" }

    package func nodeLease(_ node: String) -> String { "\(self.prefix)node:\(node)" }

    package func dispatcherLease(_ name: String) -> String { "\(self.prefix)dispatcher:\(name)" }

    /// The pub/sub channel of one node.
    package func nodeChannel(_ node: String) -> String { "\(self.prefix){node:\(node)}" }

    /// The pub/sub channel that every node hears.
    package var allNodesChannel: String { self.prefix + "all" }

    /// The pub/sub channel on which gateways hear that a user's tokens were revoked; the message is the change's number.
    package var revocationsChannel: String { self.prefix + "revocations" }

    /// The pub/sub channel on which gateways and dispatchers hear that the catalog is to be read again.
    package var catalogChannel: String { self.prefix + "catalog" }

    /// A ticket for a socket, by its hash.
    package func socketTicket(_ hash: String) -> String { "\(self.prefix)ticket:\(hash)" }

    package func unconfirmed(shard: Int) -> String { "\(self.prefix)unconfirmed:{\(shard)}" }

    /// The shard that keeps a user's unconfirmed notifications; the same in every process (FNV-1a, 32 bits).
    package func unconfirmedShard(user: String) -> Int {
        var hash: UInt32 = 2_166_136_261
        for byte in user.utf8 { hash = (hash ^ UInt32(byte)) &* 16_777_619 }
        return Int(hash % UInt32(Self.unconfirmedShards))
    }
}
