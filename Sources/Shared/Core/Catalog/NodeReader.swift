// Carillon · NodeReader.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// Reads the values of one entry and reports faults with file and line.
struct NodeReader {
    let file: String
    /// The entry that the values belong to, such as `type payment_received`; empty at the top.
    var owner = ""
    let log: CatalogFaultLog

    /// Returns a reader for another entry.
    func of(_ owner: String) -> NodeReader { NodeReader(file: self.file, owner: owner, log: self.log) }

    func location(of node: Node) -> CatalogLocation { CatalogLocation(file: self.file, line: node.mark?.line) }

    func fault(_ node: Node, _ reason: String) {
        self.fault(at: self.location(of: node), reason)
    }

    func fault(at location: CatalogLocation, _ reason: String) {
        self.log.add(self.owner.isEmpty ? "\(location): \(reason)" : "\(location): \(self.owner): \(reason)")
    }

    /// Reports an unknown setting, and suggests the known one that is closest.
    ///
    /// - Parameters:
    ///   - shown: the setting as the fault shows it; nil for its name alone.
    ///   - known: the names of the settings that exist.
    func unknown(_ key: Node, _ shown: String? = nil, among known: [String]) {
        let name = key.string ?? "?"
        let hint = Spelling.nearest(to: name, of: known).map { "; did you mean \($0)?" } ?? ""
        self.fault(key, "unknown setting \(shown ?? name)\(hint)")
    }

    /// Reports an error of the YAML parser in one line; its own description takes several.
    func syntaxFault(_ error: any Error) {
        switch error as? YamlError {
        case .scanner(let context, let problem, let mark, _)?, .parser(let context, let problem, let mark, _)?,
            .composer(let context, let problem, let mark, _)?:
            self.syntaxFault(line: mark.line, (context.map { "\($0.text), " } ?? "") + problem)
        case .reader(let problem, let offset, _, let yaml)?:
            self.syntaxFault(line: offset.map { yaml.prefix($0).count(where: \.isNewline) + 1 }, problem)
        case .duplicatedKeysInMapping(let names, let context)?:
            let verb = names.count == 1 ? "is" : "are"
            let location = CatalogLocation(file: self.file, line: context.mark.line)
            self.fault(at: location, "\(names.joined(separator: ", ")) \(verb) defined twice")
        default: self.syntaxFault(line: nil, "\(error)")
        }
    }

    private func syntaxFault(line: Int?, _ problem: String) {
        self.fault(at: CatalogLocation(file: self.file, line: line), "not valid YAML: \(problem)")
    }

    // MARK: Kinds of value

    /// Returns the entries of a mapping; reports a fault and returns none for another node.
    func entries(_ node: Node, _ expected: String) -> [(key: Node, name: String, value: Node)] {
        guard let mapping = node.mapping else {
            self.fault(node, "expected \(expected)")
            return []
        }
        return mapping.map { ($0.key, $0.key.string ?? "?", $0.value) }
    }

    /// Reads an entry's name of 1 to 128 characters.
    func name(_ node: Node, _ what: String) -> String? {
        guard let name = node.plainText, (1...JobLimits.name).contains(name.unicodeScalars.count) else {
            self.fault(node, "\(what) has 1 to \(JobLimits.name) characters")
            return nil
        }
        return name
    }

    func text(_ node: Node, _ key: String) -> String? {
        if let text = node.plainText, !text.isEmpty { return text }
        self.fault(node, "\(key) must be text")
        return nil
    }

    func bool(_ node: Node, _ key: String) -> Bool? {
        if let value = node.bool { return value }
        self.fault(node, "\(key) must be true or false")
        return nil
    }

    func integer(_ node: Node, _ key: String) -> Int? {
        if let value = node.wholeNumber { return value }
        self.fault(node, "\(key) must be a whole number")
        return nil
    }

    /// Reads a link by the rule for a job's `url`: a path in the app, or a URL to open.
    func link(_ node: Node, _ key: String) -> String? {
        guard let text = self.text(node, key) else { return nil }
        let length = text.unicodeScalars.count
        let fault =
            length > JobLimits.url ? "is longer than \(JobLimits.url) characters" : LinkRule.fault(ofLink: text)
        guard let fault else { return text }
        self.fault(node, "\(key) \(fault)")
        return nil
    }

    func integer(_ node: Node, _ key: String, in range: ClosedRange<Int>) -> Int? {
        if let value = node.wholeNumber, range.contains(value) { return value }
        self.fault(node, "\(key) must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        return nil
    }

    /// Reads a badge: `true` for the unseen count, `false` for none, or a fixed number.
    func badge(_ node: Node, _ key: String) -> BadgeRule? {
        if let hasCount = node.bool { return hasCount ? .unseen : .absent }
        if let number = node.wholeNumber, (0...JobLimits.badge).contains(number) { return .number(Int64(number)) }
        self.fault(node, "\(key) must be true, false or a whole number from 0 to \(JobLimits.badge)")
        return nil
    }

    func choice<Value: RawRepresentable<String> & CaseIterable>(_ node: Node, _ key: String) -> Value? {
        if let value = node.string.flatMap({ Value(rawValue: $0) }) { return value }
        let allowed = Value.allCases.map(\.rawValue).joined(separator: ", ")
        self.fault(node, "\(key) must be one of \(allowed)")
        return nil
    }

    func channels(_ node: Node) -> Channels? {
        guard let elements = node.sequence, !elements.isEmpty else {
            self.fault(node, "channels must be a list out of in_app, push, email")
            return nil
        }
        var channels = Channels()
        for element in elements {
            guard let channel: DeliveryChannel = self.choice(element, "channels") else { return nil }
            channels.insert(Channels(channel))
        }
        return channels
    }

    /// Reads a number with a unit: `90s`, `15m`, `24h` or `30d`.
    func duration(_ node: Node, _ key: String) -> Duration? {
        if let duration = node.string.flatMap({ Duration(written: $0) }) { return duration }
        self.fault(node, "\(key) must be a number and a unit, such as 90s, 15m, 24h or 30d")
        return nil
    }

    /// Reads a list of at least one text.
    func texts(_ node: Node, _ key: String) -> [String]? {
        guard let elements = node.sequence, !elements.isEmpty else {
            self.fault(node, "\(key) must be a list of texts")
            return nil
        }
        var texts: [String] = []
        for element in elements {
            guard let text = self.text(element, key) else { return nil }
            texts.append(text)
        }
        return texts
    }

    /// Reads `{count: 3, per: 1h}`.
    func cap(_ node: Node, _ key: String) -> FrequencyCap? {
        var count: Int?
        var window: Duration?
        for entry in self.entries(node, "\(key) as {count: 3, per: 1h}") {
            switch entry.name {
            case "count": count = self.integer(entry.value, "\(key).count", in: 1...10_000)
            case "per": window = self.duration(entry.value, "\(key).per")
            default: self.unknown(entry.key, "\(key).\(entry.name)", among: ["count", "per"])
            }
        }
        if let count, let window { return FrequencyCap(count: count, window: window) }
        if node.mapping?["count"] == nil || node.mapping?["per"] == nil, node.mapping != nil {
            self.fault(node, "\(key) needs count and per")
        }
        return nil
    }
}

extension Node {
    /// The node as text; nil for lists, mappings, and `null` or `~` without quotes.
    package var plainText: String? {
        guard let text = self.string else { return nil }
        // Yams tries a regular expression for each kind of value, too slow for every text.
        guard text == "~" || text.utf8.count == 4, self.tag == Tag(.null) else { return text }
        return nil
    }

    /// The node as a whole number; nil for other values.
    ///
    /// YAML 1.1 reads digits with colons in base 60, and Yams does not check that for overflow.
    package var wholeNumber: Int? {
        guard let text = self.scalar?.string, !text.contains(":") else { return nil }
        return self.int
    }
}
