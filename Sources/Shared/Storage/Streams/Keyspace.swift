// Carillon · Keyspace.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The names of all Redis keys.
///
/// A command or script uses keys of one `{tag}` only.
package struct Keyspace: Sendable {
    /// The consumer group of every stream.
    static let group = "dispatchers"
    /// Stands for the stream of a job that came from a schedule.
    package static let schedules = "schedules"
    /// The number of sorted sets that share the unconfirmed notifications.
    package static let unconfirmedShards = 16

    private let prefix: String

    package init(prefix: String = "carillon:") {
        self.prefix = prefix
    }

    /// An external name as part of a hash tag; different names stay different.
    ///
    /// Redis sees no tag in `{}`: for a name that is empty or begins with `}`, the keys of a script
    /// would lie in several slots.
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

    /// The overflow of an organisation: jobs moved aside so that others can pass.
    package func overflow(_ org: String) -> String { "\(self.prefix)jobs:{overflow}:\(org)" }

    /// The set of organisations with an overflow.
    package var overflows: String { self.prefix + "jobs:{overflow}" }

    package func deliveries(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.prefix){\(provider.rawValue)}:deliveries:\(lane.rawValue)"
    }

    func retries(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.prefix){\(provider.rawValue)}:retry:\(lane.rawValue)"
    }

    /// The set of apps with held deliveries.
    func held(_ provider: Provider, _ lane: Lane) -> String {
        "\(self.prefix){\(provider.rawValue)}:held:\(lane.rawValue)"
    }

    /// The held deliveries of an app.
    func held(_ provider: Provider, _ lane: Lane, app: String) -> String {
        self.held(provider, lane) + ":" + app
    }

    /// The pauses of a provider's accounts.
    func pauses(_ provider: Provider) -> String { "\(self.prefix){\(provider.rawValue)}:pauses" }

    /// The claim of the stream entry for which a delivery is being sent.
    func sendClaim(_ work: DeliveryWork, _ provider: Provider) -> String {
        let purpose = work.isRetraction ? ":x" : ""
        return "\(self.prefix){\(provider.rawValue)}:sending:\(work.notification):\(work.device)\(purpose)"
    }

    /// The lease of the sweep.
    package var sweepTurn: String { self.prefix + "sweep" }

    /// The lease of the retention run.
    package var retentionTurn: String { self.prefix + "retention" }

    /// Whether dead letters from this stream can be replayed: into a stream of jobs or deliveries,
    /// or the lane of a scheduled job.
    package func takesBack(_ stream: String) -> Bool {
        if stream == Self.schedules || self.lane(ofJobs: stream) != nil { return true }
        // Compares the form, as this process need not know the provider of a dead letter.
        let word = stream.dropFirst(self.prefix.count + 1).prefix { $0 != "}" }
        guard let provider = Provider(rawValue: String(word)) else { return false }
        return Lane.allCases.contains { self.deliveries(provider, $0) == stream }
    }

    /// The run of Redis that the last sweep saw; exists as long as Redis keeps its data.
    package var memory: String { self.prefix + "memory" }

    var dead: String { self.prefix + "dead" }

    /// The events stream.
    var events: String { self.prefix + "events" }

    /// Webhooks by due time.
    var webhooksDue: String { self.prefix + "{webhooks}:due" }

    /// The queued events of a webhook.
    func webhookQueue(_ webhook: NotificationID) -> String { "\(self.prefix){webhooks}:queue:\(webhook)" }

    func presence(_ user: String) -> String { "\(self.prefix)presence:{\(Self.tag(user))}" }

    /// The inbox versions that the user's connections have seen.
    func bookmarks(_ user: String) -> String { "\(self.prefix)bookmarks:{\(Self.tag(user))}" }

    /// The states and counts that dispatchers publish about their providers.
    var providers: String { "\(self.prefix)providers" }

    /// Requests for test sends.
    var testSends: String { "\(self.prefix)test-sends" }

    func testAnswer(_ id: String) -> String { "\(self.prefix)test-answer:\(id)" }

    /// Set when a dispatcher takes a test send.
    func testTaken(_ id: String) -> String { "\(self.prefix)test-taken:\(id)" }

    /// A user's token bucket for one kind of rate.
    func bucket(_ kind: String, _ user: String) -> String { "\(self.prefix)rate:\(kind):{\(Self.tag(user))}" }

    /// A user's count for one cap.
    func usage(_ kind: String, _ user: String) -> String { "\(self.prefix)used:{\(Self.tag(user))}:\(kind)" }

    package func nodeLease(_ node: String) -> String { "\(self.prefix)node:\(node)" }

    package func dispatcherLease(_ name: String) -> String { "\(self.prefix)dispatcher:\(name)" }

    /// The pub/sub channel of one node.
    package func nodeChannel(_ node: String) -> String { "\(self.prefix){node:\(node)}" }

    /// The pub/sub channel of all nodes.
    package var allNodesChannel: String { self.prefix + "all" }

    /// The pub/sub channel for revoked tokens; a message is the number of the revocation.
    package var revocationsChannel: String { self.prefix + "revocations" }

    /// The pub/sub channel that makes gateways and dispatchers reload the catalog.
    package var catalogChannel: String { self.prefix + "catalog" }

    /// A socket ticket, by its hash.
    package func socketTicket(_ hash: String) -> String { "\(self.prefix)ticket:\(hash)" }

    package func unconfirmed(shard: Int) -> String { "\(self.prefix)unconfirmed:{\(shard)}" }

    /// The shard of a user's unconfirmed notifications, the same in every process.
    func unconfirmedShard(user: String) -> Int {
        Int(FNV1a.hash32(user) % UInt32(Self.unconfirmedShards))
    }
}
