// Carillon · SocketIOPhrases.swift
// SPDX-License-Identifier: Apache-2.0

/// What a client may well say, so that a script reaches beyond the first check.
enum SocketIOPhrases {
    /// Texts that mean something somewhere.
    static let any: [String] = [
        "", "1", "2", "2probe", "3", "5", "6", "4", "40", "40/a,{\"pid\":\"P\",\"offset\":\"O\"}", "41", "41/a,",
        "42[\"e\"]", "421[\"e\",{\"a\":[1]}]", "42/a,7[\"e\"]", "430[]", "44{}", "42[\"connect\"]",
        "452-[\"e\",{\"_placeholder\":true,\"num\":1},[{\"_placeholder\":true,\"num\":0}]]", "451-[\"e\"]",
        "bAQID", "4\u{1E}4", "40\u{1E}42[\"e\"]\u{1E}bAA==", "abc",
    ]

    /// What a client that keeps to the protocol may say next, each with its attachments.
    static func proper(in namespace: String, isJoined: Bool) -> [[EngineIOMessage]] {
        let head = namespace == SocketIOPacket.defaultNamespace ? "" : "\(namespace),"
        guard isJoined else {
            return [[Self.text("0\(head)")], [Self.text("0\(head){\"pid\":\"P\",\"offset\":\"O\"}")]]
        }
        let placeholders = (0..<2).map { "{\"_placeholder\":true,\"num\":\($0)}" }
        return [
            [Self.text("2\(head)[\"e\"]")], [Self.text("2\(head)1[\"e\",{\"a\":[1]}]")], [Self.text("3\(head)0[]")],
            [Self.text("51-\(head)[\"e\",\(placeholders[0])]"), .binary([1, 2])],
            [Self.text("52-\(head)3[\"e\",\(placeholders[1]),[\(placeholders[0])]]"), .binary([1]), .binary([])],
            [Self.text("61-\(head)1[\(placeholders[0])]"), .binary([3])], [Self.text("1\(head)")],
        ]
    }

    private static func text(_ text: String) -> EngineIOMessage { .text(Array(text.utf8)) }
}
