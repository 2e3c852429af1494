// Carillon · VocabularyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Vocabulary", .timeLimit(.minutes(10)))
struct VocabularyTests {
    @Test("words on the wire and in the database are stable")
    func rawValues() {
        #expect(Lane.allCases.map(\.rawValue) == ["critical", "normal", "bulk"])
        #expect(Severity.allCases.map(\.rawValue) == ["alert", "warning", "info"])
        #expect(DeliveryClass.allCases.map(\.rawValue) == ["push", "in_app"])
        #expect(DeliveryChannel.allCases.map(\.rawValue) == ["in_app", "push", "email"])
        #expect(Provider.all.map(\.rawValue) == ["fcm", "apns", "webpush", "email", "webhook"])
        #expect(Platform.allCases.map(\.rawValue) == ["ios", "android", "web", "webhook"])
        #expect(Dialect.allCases.map(\.rawValue) == ["native", "socketio", "signalr", "sse"])
        #expect(
            NotificationStatus.allCases.map(\.rawValue) == [
                "pending", "sent", "delivered", "failed", "expired", "suppressed", "deferred", "cancelled",
            ]
        )
        #expect(DeliveryChannel.allCases.map { Channels($0).rawValue } == [1, 2, 4])
        #expect(Lane.allCases.map(\.rank) == [0, 1, 2])
        #expect((-1...3).map { Lane(rank: $0) } == [nil, .critical, .normal, .bulk, nil])
    }

    @Test(
        "a provider name is short, plain, and starts with a letter",
        arguments: ["a", "fcm", "webpush", "pigeon2", String(repeating: "x", count: 15)])
    func providers(word: String) throws {
        let provider = try #require(Provider(rawValue: word))
        #expect(provider.rawValue == word)
        #expect("\(provider)" == word)
    }

    @Test(
        "refuses provider names that would break a key, a metric or a line",
        arguments: [
            "", "2fast", "Pigeon", "pi geon", "pi-geon", "pi_geon", "pi:geon", "pi}geon", "pi\"geon", "pigeon\n",
            "pigéon", "ｆｃｍ", String(repeating: "x", count: 16),
        ])
    func noProviders(word: String) {
        #expect(Provider(rawValue: word) == nil)
    }

    @Test("a built-in provider equals a parsed one, and all but e-mail have devices")
    func builtIn() {
        #expect(Provider(rawValue: "fcm") == .fcm)
        #expect(Provider(word: "pigeon") == Provider(rawValue: "pigeon"))
        #expect(Provider(word: "pigeon").isOfDevices)
        #expect(Provider.all.filter(\.isOfDevices) == [.fcm, .apns, .webpush, .webhook])
    }

    @Test("the more urgent lane sorts first")
    func lanes() {
        #expect(Lane.allCases == Lane.allCases.sorted())
        #expect(Lane.allCases.map(\.weight) == [16, 4, 1])
    }

    @Test(
        "suppressed notifications and those without the in-app channel are not listed",
        arguments: [
            (Channels.all, NotificationStatus.pending, true), ([.inApp], .delivered, true),
            ([.push, .email], .sent, false),
            (.all, .suppressed, false), ([], .expired, false),
        ] as [(Channels, NotificationStatus, Bool)]
    )
    func isListed(channels: Channels, status: NotificationStatus, expected: Bool) {
        var notification = Notification(
            id: NotificationID(high: 1, low: 2), user: "u", type: "t", createdAt: Timestamp(seconds: 0))
        notification.channels = channels
        notification.status = status
        #expect(notification.isListed == expected)
    }

    @Test("random names are long enough to be unique, and plain")
    func names() {
        let names = (0..<1_000).map { _ in RandomName.make() }
        #expect(Set(names).count == names.count)
        #expect(names.joined().allSatisfy { $0.isASCII && ($0.isLowercase || $0.isNumber) })
    }
}
