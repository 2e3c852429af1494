// Carillon · Live.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Redis and the names of Carillon's keys, with a value for each kind of key.
package struct Live: Sendable {
    package let connection: RedisConnection
    package let keys: Keyspace

    package init(_ connection: RedisConnection, keys: Keyspace = Keyspace()) {
        self.connection = connection
        self.keys = keys
    }

    package var bookmarks: Bookmarks { Bookmarks(live: self) }
    package var buckets: TokenBuckets { TokenBuckets(live: self) }
    package var catalogAnnouncer: CatalogAnnouncer { CatalogAnnouncer(live: self) }
    package var eventFeed: EventFeed { EventFeed(live: self) }
    package var heldSets: HeldSets { HeldSets(live: self) }
    package var jobs: JobStream { JobStream(live: self) }
    package var overflows: OverflowStreams { OverflowStreams(live: self) }
    package var providerBoard: ProviderBoard { ProviderBoard(live: self) }
    package var retries: RetrySet { RetrySet(live: self) }
    package var sendClaims: SendClaims { SendClaims(live: self) }
    package var sendingPauses: SendingPauses { SendingPauses(live: self) }
    package var sendingTurns: SendingTurns { SendingTurns(live: self) }
    package var survey: StreamSurvey { StreamSurvey(live: self) }
    package var testSends: TestSends { TestSends(self) }
    package var unconfirmed: UnconfirmedSet { UnconfirmedSet(live: self) }
    package var usageCaps: UsageCaps { UsageCaps(live: self) }
    package var userTraces: UserTraces { UserTraces(live: self) }
    package var webhookQueues: WebhookQueues { WebhookQueues(live: self) }
}
