// Carillon · CommonOptions.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

/// Options of every command.
package struct CommonOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("A file of NAME=value lines for what the environment leaves open.", valueName: "file"),
        completion: .file()
    )
    package var config: String?

    package init() {}

    /// Reads the environment and the file.
    package func reader() async throws(SettingsFaults) -> SettingsReader {
        try await SettingsReader.process(file: self.config)
    }
}

/// The option of every command that has something to tell.
package struct OutputOptions: ParsableArguments {
    @Flag(help: "Print JSON, for programs.")
    package var json = false

    package init() {}
}
