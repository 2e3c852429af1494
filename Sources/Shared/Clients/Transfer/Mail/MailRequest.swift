// Carillon · MailRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// A complete message to one recipient.
package struct MailRequest: Sendable, CustomStringConvertible {
    /// The envelope's addresses, without angle brackets.
    var sender: String
    var recipient: String
    /// Header and body (RFC 5322) with CRLF line breaks; libcurl stuffs the dots.
    package var content: [UInt8]
    /// The caller's time limit; at most half of it passes in our queue.
    var timeout: Duration
    var priority: TransferPriority
    /// Whether the message may still start, checked just before it is sent; nil means always.
    ///
    /// False ends it as `fenced`. Runs on a sending thread, so it must not block.
    var mayStart: (@Sendable () -> Bool)?

    package init(
        sender: String,
        recipient: String,
        content: [UInt8],
        timeout: Duration = .seconds(120),
        priority: TransferPriority = .normal,
        mayStart: (@Sendable () -> Bool)? = nil
    ) {
        self.sender = sender
        self.recipient = recipient
        self.content = content
        self.timeout = timeout
        self.priority = priority
        self.mayStart = mayStart
    }

    /// Leaves out the addresses and the content, which are personal.
    package var description: String { "mail of \(self.content.count) bytes" }

    /// Whether both addresses can be part of a command: no character may end it or its angle
    /// brackets.
    var isSendable: Bool {
        [self.sender, self.recipient].allSatisfy { address in
            address.contains("@") && address.utf8.count <= 254
                && address.utf8.allSatisfy {
                    $0 > 0x20 && $0 != 0x7F && $0 != UInt8(ascii: "<") && $0 != UInt8(ascii: ">")
                }
        }
    }
}

/// A relay's last reply about one message.
package struct MailReply: Sendable, Equatable, CustomStringConvertible {
    /// The step that the reply answers.
    package enum Stage: String, Sendable, CaseIterable {
        /// Greeting, EHLO, STARTTLS and login.
        case session
        case sender, recipient
        /// DATA and the end of the message.
        case content
    }

    package let stage: Stage
    /// The reply code (RFC 5321 section 4.2); 250 means accepted.
    package let code: Int
    /// The reply's lines without their codes, cut if long; may name the addresses.
    package let text: String

    package var isAccepted: Bool { self.stage == .content && (200..<300).contains(self.code) }

    /// Whether a new connection may be one too many for the relay.
    ///
    /// Exchange Online answers 432 only once it has the message.
    var mayExceedConnections: Bool {
        self.code == 432 || self.stage == .session && (self.code == 421 || self.code == 450)
    }

    /// The enhanced status code (RFC 3463) at the start of a line, such as `5.1.1`; nil if no line
    /// has one of the reply code's class.
    ///
    /// Each line should have it (RFC 2034 section 4); some relays put it only in the last, or in
    /// marks such as `#5.1.1`.
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

    /// Leaves out the text.
    package var description: String {
        "\(self.stage.rawValue) \(self.code)" + (self.enhancedCode.map { " \($0)" } ?? "")
    }
}

/// The end of a message.
package enum MailOutcome: Sendable, Equatable {
    /// The relay accepted or refused the message.
    case answered(MailReply)
    /// The relay did not answer. If the whole message had left, it may have been accepted.
    case unanswered(TransferFailure)
}

extension Character {
    fileprivate var isASCIIDigit: Bool { self >= "0" && self <= "9" }
}
