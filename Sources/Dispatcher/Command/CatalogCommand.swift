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
        subcommands: [CatalogCheckCommand.self, CatalogSchemaCommand.self]
    )
}

/// `dispatcher catalog schema`.
struct CatalogSchemaCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "schema",
        abstract: "Prints the JSON Schema of catalog files, for editors.",
        discussion: """
            With it, an editor completes and explains the keys and marks faults. Begin a
            file with: # yaml-language-server: $schema=catalog.schema.json

            Examples:
              dispatcher catalog schema > catalog.schema.json
            """
    )

    func run() async throws {
        Terminal.line(CatalogSchema.text)
    }
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
            let reader = try self.options.reader()
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
                writer.array("faults", faults) { $0.string($1) }
                writer.array("advice", advice) { $0.string($1) }
            }
        }
        for fault in faults { Terminal.line(fault) }
        for line in advice { Terminal.line("advice: \(line)") }
        if let catalog { Terminal.line("\(catalog.all.count) types, digest \(catalog.digest)") }
    }
}
