// Carillon · SoakCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

struct SoakCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "soak")

    func run() async throws {}
}
