// Carillon · MailRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// One message to one recipient, whole.
package struct MailRequest: Sendable, CustomStringConvertible {
    /// The envelope's addresses, bare.
    package var sender: String
    package var recipient: String
    /// Header and body as RFC 5322 has them, with CRLF at each line's end; dots are stuffed on the way.
    package var content: [UInt8]
    /// How long the caller waits at most, the time in our own queue included.
    package var timeout: Duration
    /// Which go before it that wait for a connection, and before which it goes.
    package var priority: TransferPriority

    package init(
        sender: String,
        recipient: String,
        content: [UInt8],
        timeout: Duration = .seconds(120),
        priority: TransferPriority = .normal
    ) {
        self.sender = sender
        self.recipient = recipient
        self.content = content
        self.timeout = timeout
        self.priority = priority
    }

    /// Without the addresses and the content, which are somebody's.
    package var description: String { "mail of \(self.content.count) bytes" }

    /// Whether both addresses can stand in a command: what would end it, or its angle brackets, is out.
    var isSendable: Bool {
        [self.sender, self.recipient].allSatisfy { address in
            address.contains("@") && address.utf8.count <= 254
                && address.utf8.allSatisfy {
                    $0 > 0x20 && $0 != 0x7F && $0 != UInt8(ascii: "<") && $0 != UInt8(ascii: ">")
                }
        }
    }
}
