// Carillon · PersistCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

struct PersistCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "persist")

    func run() async throws {}
}
