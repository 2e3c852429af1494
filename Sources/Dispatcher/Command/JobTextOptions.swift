// Carillon · JobTextOptions.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

/// What a job says, as every command takes it that is given one.
struct JobTextOptions: ParsableArguments {
    @Option(help: "The title.")
    var title: String?

    @Option(help: "The body.")
    var body: String?

    @Option(help: "A JSON object for the client.")
    var data: String?

    @Option(name: .customLong("field"), help: ArgumentHelp("Any other field of a job.", valueName: "name=value"))
    var fields: [String] = []

    /// The fields of the job that were given by name.
    var named: [(String, String?)] { [("title", self.title), ("body", self.body), ("data", self.data)] }
}
