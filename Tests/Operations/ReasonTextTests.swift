// Carillon · ReasonTextTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core
@testable import Operations

@Suite(.timeLimit(.minutes(10)))
struct ReasonTextTests {
    @Test(
        "puts every reason of the rules into words",
        arguments: Reason.allCases.map(\.rawValue) + Exclusion.allCases.map(\.rawValue))
    func words(reason: String) {
        let text = ReasonText.of(ChannelFate(.push, isUsed: false, reason: reason))
        #expect(!text.isEmpty && text != reason)
    }

    @Test("explains that quiet hours hold back a push that waits for their end")
    func heldBack() {
        let reason = Reason.quietHours.rawValue
        let texts = [true, false].map { ReasonText.of(ChannelFate(.push, isUsed: $0, reason: reason)) }
        #expect(texts == ["quiet hours hold it back until they end", "quiet hours"])
    }
}
