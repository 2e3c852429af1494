// Carillon · KnownProvidersTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTP
import Storage
import Testing

@Suite("Known providers of a gateway", .timeLimit(.minutes(10)))
struct KnownProvidersTests {
    @Test("lists an announced provider once and keeps it when announcements stop")
    func add() {
        let providers = KnownProviders()
        #expect(providers.all == Provider.wellKnown)
        let pigeon = Provider(word: "pigeon")
        let drum = Provider(word: "drum")
        for _ in 0..<2 { providers.add([pigeon, .fcm, pigeon]) }
        providers.add([drum])
        providers.add([])
        #expect(providers.all == Provider.wellKnown + [pigeon, drum])
        #expect(providers.ofDevices == [.fcm, .apns, .webpush, .webhook, pigeon, drum])
    }

    @Test("takes no more providers than the limit")
    func bound() {
        let providers = KnownProviders()
        for number in 0..<100 { providers.add([Provider(rawValue: "p\(number)")].compactMap(\.self)) }
        #expect(providers.all.count == ProviderRoster.bound)
    }
}
