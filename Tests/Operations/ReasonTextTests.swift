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
        #expect(ReasonText.of(ChannelFate(.push, isUsed: false, reason: reason)) != reason)
    }

    @Test("says of a push that waits for the end of quiet hours that they hold it back")
    func heldBack() {
        let reason = Reason.quietHours.rawValue
        let texts = [true, false].map { ReasonText.of(ChannelFate(.push, isUsed: $0, reason: reason)) }
        #expect(texts == ["quiet hours hold it back until they end", "quiet hours"])
    }
}
