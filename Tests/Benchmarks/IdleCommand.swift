// Carillon · IdleCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

struct IdleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "idle")

    func run() async throws {}
}
