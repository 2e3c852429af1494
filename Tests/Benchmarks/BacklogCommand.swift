// Carillon · BacklogCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

struct BacklogCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "backlog")

    func run() async throws {}
}
