// Carillon · DispatcherSettingsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Operations
import Testing

@Suite("What dispatchers keep, relay and move")
struct DispatcherSettingsTests {
    @Test(
        "Databases whose outbox is relayed, with commas or spaces between them, hosts too",
        arguments: [
            ("postgresql://a@h/x", ["postgresql://a@h/x"]),
            ("postgresql://a@h/x,postgres://b@i/y", ["postgresql://a@h/x", "postgres://b@i/y"]),
            ("postgresql://a@h/x  postgres://b@i/y", ["postgresql://a@h/x", "postgres://b@i/y"]),
            ("postgresql://a@h:1,i:2/x, postgres://b@i/y", ["postgresql://a@h:1,i:2/x", "postgres://b@i/y"]),
        ]
    )
    func databases(text: String, urls: [String]) {
        let readings = Readings(["OUTBOX_DATABASE_URLS": text])
        #expect(readings.dispatcherFaults.isEmpty)
        #expect(readings.dispatcher.outboxDatabases == urls)
    }

    @Test(
        "What is no URL is named, without its text",
        arguments: ["host=h password=word", "mysql://a:word@h/x", "word"]
    )
    func noDatabases(text: String) {
        let faults = Readings(["OUTBOX_DATABASE_URLS": text]).dispatcherFaults
        #expect(faults.count == 1)
        #expect(faults.allSatisfy { $0.hasPrefix("OUTBOX_DATABASE_URLS must be URLs") && !$0.contains("word") })
    }

    @Test("Without a word, the documented periods and bounds hold; zero takes the overflow away")
    func defaults() {
        let settings = Readings().dispatcher
        #expect(settings.outboxDatabases.isEmpty)
        #expect(settings.common.eventsLength == 1_000_000)
        #expect(!settings.common.allowsPrivateWebhooks)
        #expect(settings.retention.audit == 90 && settings.retention.inbox == 90 && settings.retention.devices == 90)
        #expect(settings.retention.tombstones == 30 && settings.retention.deadLetters == 30)
        #expect(settings.overflowBacklog == 10_000 && settings.overflowShare == 1_000)
        #expect(Readings(["OVERFLOW_BACKLOG": "0", "EVENTS": "off"]).dispatcher.overflowBacklog == nil)
        #expect(Readings(["EVENTS": "off"]).gateway.common.eventsLength == nil)
    }
}
