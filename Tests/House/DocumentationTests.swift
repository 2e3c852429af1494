// Carillon · DocumentationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Testing

@Suite("Links", .timeLimit(.minutes(10)))
struct LinkTests {
    @Test("every link of a page leads to an existing file and heading")
    func links() throws {
        let pages = try Self.pages()
        #expect(pages.count > 20)
        var headings: [String: Set<String>] = [:]
        var count = 0
        for page in pages {
            for link in try Self.links(of: page) where !link.contains(#/^[a-z]+:/#) {
                count += 1
                let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
                let file =
                    parts[0].isEmpty
                    ? page : try #require(Self.resolve(String(parts[0]), from: page), "\(page): \(link)")
                let isThere = FileManager.default.fileExists(atPath: House.root.appending(path: file).path)
                #expect(isThere, "\(page): \(link) does not exist")
                guard isThere, parts.count == 2 else { continue }
                let known = try headings[file] ?? Self.anchors(of: file)
                headings[file] = known
                #expect(known.contains(String(parts[1])), "\(page): \(link) matches no heading of \(file)")
            }
        }
        #expect(count > 100)
    }

    @Test("every page can be reached from the front pages")
    func reachable() throws {
        var seen: Set<String> = []
        var next = try Self.front()
        while let page = next.popLast() {
            guard seen.insert(page).inserted else { continue }
            for link in try Self.links(of: page) where !link.contains(#/^[a-z]+:/#) {
                let target = String(link.prefix { $0 != "#" })
                if target.hasSuffix(".md"), let file = Self.resolve(target, from: page) { next.append(file) }
            }
        }
        let lost = try Self.pages().subtracting(seen)
        #expect(lost.isEmpty)
    }

    @Test("the prose of pages fits in 100 columns")
    func lineLengths() throws {
        for page in try Self.pages() {
            var isCode = false
            for line in try House.text(page).split(separator: "\n", omittingEmptySubsequences: false) {
                if line.drop(while: { $0 == " " }).hasPrefix("```") { isCode.toggle() }
                // A table's row and a comment about a block cannot wrap.
                guard !isCode, !line.hasPrefix("|"), !line.hasPrefix("<!--") else { continue }
                #expect(line.count <= 100, "\(page): \(line)")
            }
        }
    }

    @Test("no page or example builds a job id from type and entity alone, which two reminders would share")
    func jobIDs() throws {
        let sample = "'id': f'{notification.type}:{notification.entity_id}',"
        let pattern = #/\{[\w.]*type\}:\{[\w.]*entity_id\}["'`]/#
        #expect(sample.contains(pattern))
        for folder in ["docs", "examples", "deploy/demo"] {
            let root = House.root.appending(path: folder).path
            for path in try FileManager.default.subpathsOfDirectory(atPath: root) {
                guard let text = try? House.text("\(folder)/\(path)") else { continue }
                for line in text.split(separator: "\n") where line.contains(pattern) {
                    Issue.record("\(folder)/\(path): \(line)")
                }
            }
        }
    }

    @Test("no two pages about producers share a job id, which would notify only the reader of the first")
    func ownIDs() throws {
        var pages: [Substring: String] = [:]
        for page in try House.files(in: "docs/producers") where page != "docs/producers/README.md" {
            for id in Set(try House.text(page).matches(of: #/\b[a-z]+:[0-9][\w:.\-]*/#).map(\.output)) {
                #expect(pages.updateValue(page, forKey: id) == nil, "\(page): \(id)")
            }
        }
        #expect(pages.count > 20)
    }

    /// The pages that a visitor of the checkout sees first.
    private static func front() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: House.root.path).filter { $0.hasSuffix(".md") }
            + ["examples/README.md"]
    }

    /// All pages.
    private static func pages() throws -> Set<String> {
        var pages = Set(try Self.front())
        for folder in ["clients", "docs", "examples"] {
            let paths = try FileManager.default.subpathsOfDirectory(atPath: House.root.appending(path: folder).path)
            pages.formUnion(paths.filter { $0.hasSuffix(".md") }.map { "\(folder)/\($0)" })
        }
        return pages
    }

    /// A page's text without code.
    private static func prose(of page: String) throws -> String {
        try House.text(page)
            .replacing(#/(?m)^```[\s\S]*?^```$/#, with: "")
            .replacing(#/`[^`\n]*`/#) { match in
                match.output.filter { $0 == "`" || $0.isLetter || $0.isNumber || " -_".contains($0) }
            }
    }

    /// The targets of a page's links and pictures.
    private static func links(of page: String) throws -> [String] {
        let text = try Self.prose(of: page)
        let inline = text.matches(of: #/\]\(([^)\s]+)\)/#).map { String($0.output.1) }
        let tags = text.matches(of: #/(?:src|href)="([^"]+)"/#).map { String($0.output.1) }
        return inline + tags
    }

    /// The path of a relative link from the root; nil if it leaves the checkout.
    private static func resolve(_ link: String, from page: String) -> String? {
        var parts = page.split(separator: "/").dropLast().map { String($0) }
        for part in link.split(separator: "/") {
            switch part {
            case ".": continue
            case "..":
                guard parts.popLast() != nil else { return nil }
            default: parts.append(String(part))
            }
        }
        return parts.joined(separator: "/")
    }

    /// The anchors of a page's headings, as GitHub generates them.
    private static func anchors(of page: String) throws -> Set<String> {
        var anchors: Set<String> = []
        for line in try Self.prose(of: page).split(separator: "\n") {
            guard let heading = line.wholeMatch(of: #/#{1,6} +(.+?) */#) else { continue }
            let text = heading.output.1.replacing(#/\[([^\]]*)\]\([^)]*\)/#) { $0.output.1 }
            let name = String(
                text.lowercased().unicodeScalars
                    .filter {
                        $0.properties.isAlphabetic || $0.properties.numericType != nil
                            || " -_".unicodeScalars.contains($0)
                    }
                    .map { $0 == " " ? "-" : Character($0) })
            var unique = name
            var copy = 0
            while !anchors.insert(unique).inserted {
                copy += 1
                unique = "\(name)-\(copy)"
            }
        }
        return anchors
    }
}

@Suite("Swift library", .timeLimit(.minutes(10)))
struct SwiftLibraryTests {
    @Test("its pages name the Swift and the systems of Package.swift")
    func versions() throws {
        let pattern = #/swift-tools-version: ([\d.]+)[\s\S]*?\.iOS\(\.v(\d+)\), \.macOS\(\.v(\d+)\)/#
        let package = try House.text("Package.swift")
        let (_, swift, iOS, macOS) = try #require(package.firstMatch(of: pattern)).output
        let page = try House.text("docs/clients/ios.md")
        #expect(page.contains("iOS \(iOS) ") && page.contains("Swift \(swift) "))
        let library = try House.text("clients/swift/README.md")
        #expect(library.contains("iOS \(iOS), macOS \(macOS) ") && library.contains("Swift \(swift) "))
    }
}

@Suite("Monitoring reference", .timeLimit(.minutes(10)))
struct OperatingTests {
    /// Names in the first column of the table below a heading, without labels in braces.
    private static func names(below heading: String) throws -> [String] {
        let lines = try House.text("docs/monitoring.md").split(separator: "\n", omittingEmptySubsequences: false)
        let start = try #require(lines.firstIndex { $0 == heading })
        let section = lines[(start + 1)...].prefix { !$0.hasPrefix("## ") }
        return section.compactMap { $0.prefixMatch(of: #/\| `([^`{]+)(?:\{[^`]*)?`/#).map { String($0.output.1) } }
    }

    /// All matches of a pattern in the sources, with the files that contain them.
    private static func found(_ pattern: Regex<(Substring, Substring)>) throws -> [String: Set<String>] {
        var found: [String: Set<String>] = [:]
        for file in try House.swiftFiles(in: "Sources") {
            for match in try House.text(file).matches(of: pattern) {
                found[String(match.output.1), default: []].insert(file)
            }
        }
        return found
    }

    @Test("docs/monitoring.md lists the metrics that the sources create, and no others")
    func metrics() throws {
        let listed = try Self.names(below: "## Metrics")
        #expect(listed.count > 80)
        #expect(Set(listed).count == listed.count, "a metric is listed twice")
        // `label: "carillon.…"` names a metric or a logger.
        let labels = try Self.found(#/(?:label: |counter\(\s*)"(carillon\.[a-z_.]+)"/#).filter { label, files in
            try files.contains { file in
                try !House.text(file).contains("ogger(label: \"\(label)\"")
            }
        }
        let prefixed = try Self.found(#/"(carillon\.[a-z_.]+\.)" \+ name/#).keys
        var made: Set<String> = []
        for label in labels.keys where !prefixed.contains(label) {
            made.insert(String(label.map { $0 == "." ? "_" : $0 }))
        }
        let ours = Set(listed.filter { $0.hasPrefix("carillon_") })
        let streams = ours.filter { $0.hasPrefix("carillon_stream_") }
        #expect(prefixed.sorted() == ["carillon.stream."] && streams.count == 5)
        #expect(made.subtracting(ours).isEmpty, "add these to docs/monitoring.md")
        #expect(ours.subtracting(streams).subtracting(made).isEmpty, "no source creates these")
    }

    @Test("docs/monitoring.md lists the keys that log lines use, and no others")
    func logKeys() throws {
        let listed = try Self.names(below: "## Logs")
        #expect(Set(listed).count == listed.count, "a key is listed twice")
        var keys = Set(try Self.found(#/"([a-z][a-z_.]*)": "\\\(/#).keys)
        keys.formUnion(try Self.found(#/etadata\["([a-z_.]+)"\]/#).keys)
        keys.formUnion(try Self.found(#/metadataKey: "([a-z_.]+)"/#).keys)
        keys.formUnion(try Self.found(#/key: "([a-z_.]+)", name: /#).keys)
        // Keys that every log line has.
        keys.formUnion(["at", "level", "logger", "message"])
        #expect(keys.subtracting(listed).isEmpty, "add these to docs/monitoring.md")
        #expect(Set(listed).subtracting(keys).isEmpty, "no log line uses these")
    }
}

@Suite("Configuration reference", .timeLimit(.minutes(10)))
struct ConfigurationTableTests {
    @Test("docs/configuration.md lists the variables that the settings read, and no others")
    func table() throws {
        let text = try House.text("docs/configuration.md")
        var listed: Set<String> = []
        for line in text.split(separator: "\n") where line.hasPrefix("| `") {
            let column = line.split(separator: "|")[0]
            for match in column.matches(of: #/`([A-Z0-9_]+)`/#) { listed.insert(String(match.output.1)) }
        }
        let known = try Deployment.knownVariables()
        #expect(known.count > 50)
        #expect(known.subtracting(listed).isEmpty, "add these to docs/configuration.md")
        #expect(listed.subtracting(known).isEmpty, "no setting reads these")
    }
}

@Suite("Reasons reference", .timeLimit(.minutes(10)))
struct ReasonTableTests {
    private static let known = Set(
        Reason.allCases.map(\.rawValue) + GateRefusal.allCases.map(\.rawValue)
            + RecordedReason.allCases.map(\.rawValue))

    @Test("docs/routing.md lists the reasons that the code records, and no others")
    func table() throws {
        let lines = try House.text("docs/routing.md").split(separator: "\n", omittingEmptySubsequences: false)
        let start = try #require(lines.firstIndex { $0 == "## Reasons" })
        var listed: [String] = []
        for line in lines[(start + 1)...].prefix(while: { !$0.hasPrefix("## ") }) where line.hasPrefix("| `") {
            let column = line.split(separator: "|")[0]
            for match in column.matches(of: #/`([a-z_]+)`/#) { listed.append(String(match.output.1)) }
        }
        #expect(Set(listed).count == listed.count, "a reason is listed twice")
        #expect(Self.known.subtracting(listed).isEmpty, "add these to docs/routing.md")
        #expect(Set(listed).subtracting(Self.known).isEmpty, "the code does not record these")
    }

    @Test("the operator's page has every reason in words")
    func words() throws {
        let text = try House.text("Sources/Gateway/HTTP/Web/Resources/admin-words.js")
        let list = try #require(text.firstMatch(of: #/const reasons = \{\n([\s\S]*?)\n\};/#)).output.1
        let words = list.matches(of: #/(?m)^  ([a-z_]+): "/#).map { String($0.output.1) }
        #expect(Self.known.subtracting(words).isEmpty, "add these to admin-words.js")
    }

    @Test("the statements about a status' reason know the code's reasons only")
    func statements() throws {
        var words: Set<String> = []
        for file in try House.swiftFiles(in: "Sources/Shared/Storage/Stores") {
            for line in try House.text(file).split(separator: "\n") {
                guard let place = line.firstRange(of: "status_reason") else { continue }
                for match in line[place.upperBound...].matches(of: #/'([a-z_]+)'/#) {
                    words.insert(String(match.output.1))
                }
            }
        }
        #expect(words.contains("in_flight"))
        #expect(words.subtracting(Self.known).subtracting(NotificationStatus.allCases.map(\.rawValue)).isEmpty)
    }
}
