// Carillon · InboxPart.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// The part of the notifications' table that a user's inbox lies in.
///
/// PostgreSQL parts the table by its hash of the user. A statement about one user that names the part spares the server to
/// lock and to set up all sixteen, which costs it as much as reading a page.
enum InboxPart {
    static let count = 16

    /// The name of each part's table, in order.
    static let tables = (0..<Self.count).map { number in
        number < 10 ? "carillon.notifications_0\(number)" : "carillon.notifications_\(number)"
    }

    /// The number of the user's part.
    ///
    /// As `compute_partition_hash_value` of PostgreSQL has it for one column of type text, which must stay as it is for
    /// tables to outlive an upgrade.
    static func number(of user: String) -> Int {
        var user = user
        let hash = user.withUTF8 { Self.hash(UnsafeRawBufferPointer($0)) }
        return Int((hash &+ 0x49a0_f4dd_15e5_a8e3) % UInt64(Self.count))
    }

    /// - Throws: ``PostgresError`` if the server places users elsewhere, so that inboxes would look empty.
    static func check(_ connection: BlockingConnection) throws {
        let samples = [
            "", "a", "ada", "12345678", "user-1234567", "user-12345678", "Zoë", String(repeating: "long ", count: 21),
        ]
        let rows = samples.map { "('\($0)', \(Self.number(of: $0)))" }.joined(separator: ", ")
        let misplaced = try connection.query(
            """
            SELECT v.part FROM (VALUES \(rows)) AS v (user_id, part)
            WHERE NOT satisfies_hash_partition('carillon.notifications'::regclass, \(Self.count), v.part, v.user_id::text)
            """
        )
        guard misplaced.isEmpty else {
            throw PostgresError(
                .server, "this PostgreSQL keeps users in other parts of the notifications than Carillon looks in")
        }
    }

    /// Bob Jenkins' lookup3 with a seed of 64 bits, as `hash_bytes_extended` of PostgreSQL's `hashfn.c` uses it.
    private static func hash(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        let start = 0x9e37_79b9 &+ UInt32(truncatingIfNeeded: bytes.count) &+ 3_923_095
        var state = Lookup3(a: start, b: start, c: start)
        // PostgreSQL's HASH_PARTITION_SEED.
        let seed: UInt64 = 0x7A5B_2236_7996_DCFD
        state.a &+= UInt32(truncatingIfNeeded: seed >> 32)
        state.b &+= UInt32(truncatingIfNeeded: seed)
        state.mix()
        var rest = bytes[...]
        while rest.count >= 12 {
            state.a &+= Self.word(rest, at: 0)
            state.b &+= Self.word(rest, at: 4)
            state.c &+= Self.word(rest, at: 8)
            state.mix()
            rest = rest.dropFirst(12)
        }
        state.a &+= Self.word(rest, at: 0)
        state.b &+= Self.word(rest, at: 4)
        // The lowest byte stands for the length.
        state.c &+= Self.word(rest, at: 8) << 8
        state.finish()
        return UInt64(state.b) << 32 | UInt64(state.c)
    }

    /// The four bytes from an offset on, the lowest first; those that are missing are zero.
    private static func word(_ bytes: Slice<UnsafeRawBufferPointer>, at offset: Int) -> UInt32 {
        var word: UInt32 = 0
        for (place, byte) in bytes.dropFirst(offset).prefix(4).enumerated() { word |= UInt32(byte) << (8 * place) }
        return word
    }
}

/// The three words that lookup3 turns about.
private struct Lookup3 {
    var a: UInt32
    var b: UInt32
    var c: UInt32

    private static func rotate(_ word: UInt32, _ bits: UInt32) -> UInt32 { word << bits | word >> (32 - bits) }

    mutating func mix() {
        self.a = (self.a &- self.c) ^ Self.rotate(self.c, 4)
        self.c &+= self.b
        self.b = (self.b &- self.a) ^ Self.rotate(self.a, 6)
        self.a &+= self.c
        self.c = (self.c &- self.b) ^ Self.rotate(self.b, 8)
        self.b &+= self.a
        self.a = (self.a &- self.c) ^ Self.rotate(self.c, 16)
        self.c &+= self.b
        self.b = (self.b &- self.a) ^ Self.rotate(self.a, 19)
        self.a &+= self.c
        self.c = (self.c &- self.b) ^ Self.rotate(self.b, 4)
        self.b &+= self.a
    }

    mutating func finish() {
        self.c = (self.c ^ self.b) &- Self.rotate(self.b, 14)
        self.a = (self.a ^ self.c) &- Self.rotate(self.c, 11)
        self.b = (self.b ^ self.a) &- Self.rotate(self.a, 25)
        self.c = (self.c ^ self.b) &- Self.rotate(self.b, 16)
        self.a = (self.a ^ self.c) &- Self.rotate(self.c, 4)
        self.b = (self.b ^ self.a) &- Self.rotate(self.a, 14)
        self.c = (self.c ^ self.b) &- Self.rotate(self.b, 24)
    }
}
