// Carillon · MailReply.swift
// SPDX-License-Identifier: Apache-2.0

/// What a relay said last about one message.
package struct MailReply: Sendable, Equatable, CustomStringConvertible {
    /// What the reply was to.
    package enum Stage: String, Sendable, CaseIterable {
        /// Greeting, EHLO, STARTTLS and login.
        case session
        case sender, recipient
        /// DATA and the message's end.
        case content
    }

    package let stage: Stage
    /// RFC 5321 section 4.2: 250 once the message was taken.
    package let code: Int
    /// The reply's lines without their codes, cut where they are long; may name the addresses.
    package let text: String

    package init(stage: Stage, code: Int, text: String) {
        self.stage = stage
        self.code = code
        self.text = text
    }

    package var isAccepted: Bool { self.stage == .content && (200..<300).contains(self.code) }

    /// The enhanced status code (RFC 3463) that a line of the text begins with, such as `5.1.1`; nil if none has one of the
    /// code's class.
    ///
    /// Each line ought to have it (RFC 2034 section 4); some relays have it in the last only, or in marks such as `#5.1.1`.
    package var enhancedCode: String? {
        self.text.split(separator: "\n").lazy.compactMap { self.enhancedCode(of: $0) }.first
    }

    private func enhancedCode(of line: Substring) -> String? {
        let marks: Set<Character> = ["#", "(", ")", "[", "]", ":", ","]
        let start = line.drop { $0 == " " || marks.contains($0) }
        let word = start.prefix { $0 != " " && !marks.contains($0) }
        let parts = word.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3, parts.allSatisfy({ (1...3).contains($0.count) && $0.allSatisfy(\.isASCIIDigit) }),
            parts[0] == String(self.code / 100)
        else { return nil }
        return String(word)
    }

    /// Without the text.
    package var description: String {
        "\(self.stage.rawValue) \(self.code)" + (self.enhancedCode.map { " \($0)" } ?? "")
    }
}

/// How the sending of a message ended.
package enum MailOutcome: Sendable, Equatable {
    /// The relay said what it does with it, be it 250 or 550.
    case answered(MailReply)
    /// The relay said nothing about it. Whether it has it is not known if all of it had left.
    case unanswered(TransferFailure)
}

extension Character {
    fileprivate var isASCIIDigit: Bool { self >= "0" && self <= "9" }
}
