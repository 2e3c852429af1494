// Carillon · SocketIOTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Support

/// Engine.IO payloads and packets, Socket.IO packets, and whole sessions of both.
struct SocketIOTarget: FuzzTarget {
    let dictionary = [
        "\u{1E}", "0", "1", "2probe", "3probe", "4", "40", "41", "42[\"e\"]", "42/a,7[\"e\"]", "430[]", "44{}", "5",
        "6",
        "452-[\"e\",{\"_placeholder\":true,\"num\":0}]", "bAQID", "40/a,{\"token\":\"t\"}", "[\"connect\"]",
    ]

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        var kinds: [String] = []
        do throws(EngineIOFault) {
            let packets = try EngineIOPayload.decode(input, maximumPackets: 16, maximumBytes: 4_096)
            kinds += packets.map { String("\($0)".prefix { $0 != "(" }) }
            let again = try EngineIOPayload.decode(
                EngineIOPayload.encode(packets), maximumPackets: 16, maximumBytes: 16_384)
            if again != packets { return FuzzOutcome("faulty", fault: "a payload changes when written and read") }
        } catch {
            kinds.append("\(error)")
        }
        var decoder = SocketIODecoder(configuration: SocketIOConfiguration())
        do throws(SocketIOFault) {
            let packet = try decoder.read(.text(input))
            kinds.append(packet.map { String("\($0.content)".prefix { $0 != "(" }) } ?? "waits")
        } catch {
            kinds.append("\(error)")
        }
        return FuzzOutcome(kinds.prefix(6).joined(separator: " "), fault: SocketIOExercise.run(input))
    }
}
