// Carillon · PushCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

struct PushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "push")

    func run() async throws {}
}
