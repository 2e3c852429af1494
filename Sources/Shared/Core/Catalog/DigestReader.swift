// Carillon · DigestReader.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// Reads how a type's notifications are gathered: `{window: 15m, sliding: true, maximum: 1h, singles: 5}`.
struct DigestReader {
    private let reader: NodeReader

    init(_ reader: NodeReader) {
        self.reader = reader
    }

    func read(_ node: Node) -> DigestRule? {
        var window: Duration?
        var maximum: Duration?
        var isSliding = false
        var singles = 0
        for entry in self.reader.entries(node, "digest as {window: 15m}") {
            switch entry.name {
            case "window": window = self.reader.duration(entry.value, "digest.window")
            case "maximum": maximum = self.reader.duration(entry.value, "digest.maximum")
            case "sliding": isSliding = self.reader.bool(entry.value, "digest.sliding") ?? false
            case "singles": singles = self.reader.integer(entry.value, "digest.singles", in: 0...1_000) ?? 0
            default: self.reader.fault(entry.key, "unknown setting digest.\(entry.name)")
            }
        }
        guard let settings = node.mapping else { return nil }
        if settings["window"] == nil { self.reader.fault(node, "digest needs a window") }
        guard let window else { return nil }
        if let node = settings["maximum"], !isSliding {
            self.reader.fault(node, "digest.maximum is for sliding windows")
        } else if let node = settings["maximum"], let maximum, maximum < window {
            self.reader.fault(node, "digest.maximum is shorter than the window")
        } else if isSliding, settings["maximum"] == nil {
            self.reader.fault(node, "a sliding digest needs a maximum")
        }
        var rule = DigestRule(window: window, maximum: maximum)
        rule.isSliding = isSliding
        rule.singles = singles
        return rule
    }
}
