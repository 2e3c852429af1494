// Carillon · CatalogCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations

/// `dispatcher catalog`.
struct CatalogCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "catalog",
        abstract: "Works with the catalog's files.",
        subcommands: [CatalogCheckCommand.self]
    )
}

/// `dispatcher catalog check`.
struct CatalogCheckCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Checks a catalog: every fault with file and line, and advice on what is missing.",
        discussion: """
            Reads the file or folder, or CATALOG without one. Needs no stores, so it suits
            continuous integration. Exits with 1 if there is a fault; with --strict, also
            if there is advice.

            Examples:
              dispatcher catalog check deploy/catalog.d
              dispatcher catalog check catalog.yaml --strict
              CATALOG=/etc/carillon/catalog.d dispatcher catalog check --json
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(help: "A YAML file, or a folder of them.", completion: .file())
    var path: String?

    @Flag(help: "Exits with 1 for advice, too.")
    var strict = false

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try await self.options.reader()
            let setting = reader.text("CATALOG")
            guard let path = self.path ?? setting else {
                throw ValidationError("give the path of a catalog, or set CATALOG")
            }
            var faults: [String] = []
            var catalog: Catalog?
            do throws(CatalogFaults) {
                catalog = try CatalogLoader.load(path: path)
            } catch {
                faults = error.faults.map(\.description)
            }
            let advice = catalog.map { CatalogAdvice.lines(for: $0) } ?? []
            self.show(catalog, faults: faults, advice: advice)
            if !faults.isEmpty { throw CommandFailure(ExitStatus.no, "the catalog is faulty") }
            if self.strict, !advice.isEmpty {
                throw CommandFailure(ExitStatus.no, "the catalog lacks what is listed above")
            }
        }
    }

    private func show(_ catalog: Catalog?, faults: [String], advice: [String]) {
        guard !self.output.json else {
            return Terminal.object { writer in
                writer.member("types", catalog?.all.count ?? 0)
                writer.member("digest", catalog?.digest)
                for (name, lines): (StaticString, [String]) in [("faults", faults), ("advice", advice)] {
                    writer.key(name)
                    writer.beginArray()
                    for line in lines { writer.string(line) }
                    writer.endArray()
                }
            }
        }
        for fault in faults { Terminal.line(fault) }
        for line in advice { Terminal.line("advice: \(line)") }
        if let catalog { Terminal.line("\(catalog.all.count) types, digest \(catalog.digest)") }
    }
}

/// Advice on a valid catalog.
enum CatalogAdvice {
    /// Returns a line for each thing that users or operators may miss, by type.
    static func lines(for catalog: Catalog) -> [String] {
        var lines: [String] = []
        let locales = catalog.all.reduce(into: Set<String>()) { locales, type in
            locales.formUnion(catalog.templates(of: type.name)?.locales.keys.map { $0 } ?? [])
        }
        for type in catalog.all {
            func advise(_ text: String) { lines.append("type \(type.name): \(text)") }
            if let templates = catalog.templates(of: type.name) {
                let missing = locales.subtracting(templates.locales.keys)
                if !missing.isEmpty {
                    advise("has no templates for \(missing.sorted().joined(separator: ", ")), which other types have")
                }
            }
            if catalog.presentation(ofType: type.name).title.isEmpty {
                advise("has no title; users see its name in readable form")
            }
            if type.channels.contains(.email), type.emailDelay == nil, type.channels != [.email], !type.isRequired {
                advise("has e-mail among its channels but no email_after, so users get mail only if they ask for it")
            }
        }
        for category in Set(catalog.categories.map(\.category)).sorted()
        where catalog.presentation(ofCategory: category).title.isEmpty {
            lines.append("category \(category): has no title; users see its name in readable form")
        }
        return lines
    }
}
