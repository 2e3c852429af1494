// Carillon · ReasonTextTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core
@testable import Operations

@Suite(.timeLimit(.minutes(10)))
struct ReasonTextTests {
    @Test(
        "puts every reason of the rules into words, and names it",
        arguments: Reason.allCases.map(\.rawValue) + Exclusion.allCases.map(\.rawValue))
    func words(reason: String) {
        let text = ReasonText.of(reason)
        #expect(text.hasSuffix(" (\(reason))"))
        #expect(text != reason)
    }
}
