// Carillon · CatalogLoader.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
package import Model
import Yams

/// Reads the catalog from YAML: a file, or a folder of files.
package enum CatalogLoader {
    /// - Throws: ``CatalogFault`` that names file, line, key and what is expected.
    package static func load(path: String) throws(CatalogFault) -> Catalog {
        var isFolder = false
        guard FileManager.default.fileExists(atPath: path, isDirectory: &isFolder) else {
            throw CatalogFault("\(path): no such file or folder")
        }
        var types: [NotificationType] = []
        var topics: [TopicRule] = []
        for file in isFolder ? try Self.files(in: path) : [path] {
            guard let bytes = FileManager.default.contents(atPath: file),
                let text = String(validating: bytes, as: UTF8.self)
            else { throw CatalogFault("\(file): cannot be read as UTF-8 text") }
            types += try Self.parse(text, file: file)
            topics += try TopicReader.parse(text, file: file)
        }
        return try Catalog(types, topics: topics)
    }

    private static func files(in folder: String) throws(CatalogFault) -> [String] {
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: folder)
        } catch {
            throw CatalogFault("\(folder): cannot be listed")
        }
        let files = names.filter { $0.hasSuffix(".yaml") || $0.hasSuffix(".yml") }.sorted()
        guard !files.isEmpty else { throw CatalogFault("\(folder): holds no .yaml file") }
        return files.map { "\(folder)/\($0)" }
    }

    /// Reads one document: `types:` with an entry a type.
    ///
    /// - Throws: ``CatalogFault``.
    package static func parse(_ text: String, file: String) throws(CatalogFault) -> [NotificationType] {
        let root: Node?
        do {
            root = try Yams.compose(yaml: text)
        } catch {
            throw CatalogFault("\(file): \(error)")
        }
        // A file may hold topics alone.
        if let root = root?.mapping, root["types"] == nil, root["topics"] != nil { return [] }
        guard let types = root?.mapping?["types"]?.mapping else {
            throw CatalogFault("\(file): expected `types:` with an entry for each type")
        }
        var loaded: [NotificationType] = []
        for (key, node) in types {
            loaded.append(try TypeReader(file: file, name: key, entry: node).type())
        }
        return loaded
    }
}

/// Reads one entry and names what is wrong with it.
private struct TypeReader {
    let file: String
    let name: Node
    let entry: Node

    private func fault(_ node: Node, _ reason: String) -> CatalogFault {
        let line = node.mark.map { ":\($0.line)" } ?? ""
        return CatalogFault("\(self.file)\(line): type \(self.name.string ?? "?"): \(reason)")
    }

    func type() throws(CatalogFault) -> NotificationType {
        guard let name = self.name.string, (1...JobLimits.name).contains(name.unicodeScalars.count) else {
            throw self.fault(self.name, "a name has 1 to \(JobLimits.name) characters")
        }
        guard let settings = self.entry.mapping else { throw self.fault(self.entry, "expected settings") }
        var type = NotificationType(name: name)
        for (key, value) in settings {
            switch key.string {
            case "code": type.code = try self.integer(value, "code")
            case "severity": type.severity = try self.choice(value, "severity")
            case "delivery": type.delivery = try self.choice(value, "delivery")
            case "lane": type.lane = try self.choice(value, "lane")
            case "category": type.category = try self.text(value, "category")
            case "sound": type.sound = try self.text(value, "sound")
            case "channels": type.channels = try self.channels(value)
            case "default": type.isOnByDefault = try self.bool(value, "default")
            case "required": type.isRequired = try self.bool(value, "required")
            case "enabled": type.isEnabled = try self.bool(value, "enabled")
            case "time_to_live": type.timeToLive = try self.duration(value)
            default: throw self.fault(key, "unknown setting \(key.string ?? "?")")
            }
        }
        return type
    }

    private func text(_ node: Node, _ key: String) throws(CatalogFault) -> String {
        guard let text = node.string, !text.isEmpty else { throw self.fault(node, "\(key) must be text") }
        return text
    }

    private func bool(_ node: Node, _ key: String) throws(CatalogFault) -> Bool {
        guard let value = node.bool else { throw self.fault(node, "\(key) must be true or false") }
        return value
    }

    private func integer(_ node: Node, _ key: String) throws(CatalogFault) -> Int {
        guard let value = node.int else { throw self.fault(node, "\(key) must be a whole number") }
        return value
    }

    private func choice<Value: RawRepresentable<String> & CaseIterable>(
        _ node: Node,
        _ key: String
    ) throws(CatalogFault) -> Value {
        guard let value = node.string.flatMap({ Value(rawValue: $0) }) else {
            let allowed = Value.allCases.map(\.rawValue).joined(separator: ", ")
            throw self.fault(node, "\(key) must be one of \(allowed)")
        }
        return value
    }

    private func channels(_ node: Node) throws(CatalogFault) -> Channels {
        guard let elements = node.sequence, !elements.isEmpty else {
            throw self.fault(node, "channels must be a list out of in_app, push, email")
        }
        var channels = Channels()
        for element in elements { channels.insert(Channels(try self.choice(element, "channels"))) }
        return channels
    }

    /// A number and its unit: `90s`, `15m`, `24h` or `30d`.
    private func duration(_ node: Node) throws(CatalogFault) -> Duration {
        let units: [Character: Int] = ["s": 1, "m": 60, "h": 3_600, "d": 86_400]
        guard let text = node.string, let unit = text.last.flatMap({ units[$0] }),
            let number = Int(text.dropLast()), (1...31_536_000).contains(number)
        else { throw self.fault(node, "time_to_live must be a number and a unit, such as 90s, 15m, 24h or 30d") }
        return .seconds(number * unit)
    }
}
