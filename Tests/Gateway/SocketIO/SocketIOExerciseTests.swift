// Carillon · SocketIOExerciseTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Support
import Testing

@Suite("Arbitrary input", .timeLimit(.minutes(10)))
struct SocketIOExerciseTests {
    @Test("keeps every promise on any sequence of client and owner actions", arguments: 0..<16)
    func scripts(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        for _ in 0..<400 {
            let script = generator.bytes(Int.random(in: 0...400, using: &generator))
            let broken = SocketIOExercise.run(script)
            #expect(broken == nil, "\(script)")
        }
    }

    @Test("reads or refuses damaged packets without a trap", arguments: 0..<16)
    func damaged(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        let packets = [
            #"0/admin,{"token":"x","pid":"P","offset":"O"}"#,
            #"2/admin,12["name",1,{"a":[true,null]},"\u00e9\ud83d\ude00"]"#,
            #"52-/admin,7["e",{"_placeholder":true,"num":0},[{"_placeholder":true,"num":1}]]"#, "3/admin,13[]",
            "4hello\u{1E}bAQIDBA==\u{1E}2probe\u{1E}3",
        ]
        for _ in 0..<400 {
            var bytes = Array((packets.randomElement(using: &generator) ?? "").utf8)
            for _ in 0..<Int.random(in: 1...4, using: &generator) where !bytes.isEmpty {
                let place = bytes.indices.randomElement(using: &generator) ?? 0
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: bytes[place] = UInt8.random(in: .min ... .max, using: &generator)
                case 1: bytes.remove(at: place)
                case 2: bytes.insert(bytes.randomElement(using: &generator) ?? 0, at: place)
                default: bytes.removeSubrange(place...)
                }
            }
            let broken = SocketIOExercise.run(bytes)
            #expect(broken == nil, "\(bytes)")
        }
    }

    @Test("refuses deep nesting and long numbers without a trap")
    func extremes() {
        let deep = String(repeating: "[", count: 100_000)
        let texts = ["2\(deep)", "51-\(deep)", "2" + String(repeating: "9", count: 100_000), "5" + deep, "0/" + deep]
        for text in texts {
            var decoder = SocketIODecoder(configuration: SocketIOConfiguration())
            #expect(throws: SocketIOFault.self) { try decoder.read(.text(Array(text.utf8))) }
        }
    }
}
